import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** The browser goes on to the provider, where its session ends too. */
export function useSignOut() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => api(endpoints.signOut, {}),
    onSuccess: ({ provider_url }) => {
      if (provider_url) window.location.assign(provider_url);
      else void client.resetQueries();
    },
  });
}
