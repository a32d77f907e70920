import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { meOptions } from "@/lib/api/get-me";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";

/** The browser goes on to the provider, where its session ends too. */
export function useSignOut() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => api(endpoints.signOut, {}),
    onError: ({ message }) => {
      showToast({ text: t`You are still signed in: ${message}` });
      // Where only the answer was lost, one is signed out, and the page is to show it.
      void client.invalidateQueries({ queryKey: meOptions.queryKey });
    },
    onSuccess: ({ provider_url }) => {
      if (provider_url) window.location.assign(provider_url);
      else void client.resetQueries();
    },
  });
}
