import { infiniteQueryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const REFRESH_MS = 5_000;

export interface AuditFilter {
  caller: string;
  path: string;
  kind: string;
}

export const auditLogOptions = ({ caller, path, kind }: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: ["audit", caller, path, kind],
    queryFn: ({ signal, pageParam }) =>
      api(endpoints.listChanges, {
        query: {
          caller: caller || null,
          path: path || null,
          kind: kind || null,
          limit: 100,
          cursor: pageParam,
        },
        signal,
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_cursor,
    refetchInterval: REFRESH_MS,
  });
