import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { aboutTopic } from "@/lib/topics";

export function useRemoveMember(namespace: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (memberId: string) =>
      api(endpoints.removeMember, { place: { namespace, member_id: memberId } }),
    onSuccess: () => client.invalidateQueries(aboutTopic("members")),
  });
}
