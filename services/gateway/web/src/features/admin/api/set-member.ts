import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { MemberRequest } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

export function useSetMember(namespace: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: MemberRequest) => api(endpoints.setMember, { place: { namespace }, body }),
    onSuccess: ({ name }) => {
      showToast({ text: t`Member set: ${name} in ${namespace}` });
      return client.invalidateQueries(aboutTopic("members"));
    },
  });
}
