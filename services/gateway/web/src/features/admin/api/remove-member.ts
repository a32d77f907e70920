import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { MemberView } from "@schemas/messages";
import { api, unlessGone } from "@/lib/api-client";
import { showToast, undoBy } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

export function useRemoveMember(namespace: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ member_id }: MemberView) =>
      unlessGone(api(endpoints.removeMember, { place: { namespace, member_id } })),
    onSuccess: (_, { kind, name, role }) => {
      const refresh = () => client.invalidateQueries(aboutTopic("members"));
      const undo = async () => {
        await api(endpoints.setMember, { place: { namespace }, body: { kind, name, role } });
        await refresh();
      };
      showToast({ text: t`Member removed: ${name} from ${namespace}`, undo: undoBy(undo) });
      return refresh();
    },
  });
}
