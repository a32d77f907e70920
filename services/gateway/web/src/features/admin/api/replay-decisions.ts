import { useMutation } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

export interface ReplayRange {
  from_id: number | null;
  reservation_id: string | null;
  limit: number;
}

export function useReplay() {
  return useMutation({
    mutationFn: ({ from_id, reservation_id, limit }: ReplayRange) =>
      api(endpoints.replayDecisions, { query: { from_id, reservation_id, limit } }),
  });
}
