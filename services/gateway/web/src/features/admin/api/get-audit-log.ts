import { infiniteQueryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const REFRESH_MS = 5_000;

/** Empty: all. */
export interface AuditFilter {
  caller: string;
  about: string;
  kind: string;
  action: string;
  result: string;
}

export const auditLogOptions = (filter: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: ["audit", filter],
    queryFn: ({ signal, pageParam }) =>
      api(endpoints.listChanges, {
        query: {
          caller: filter.caller || null,
          about: filter.about || null,
          kind: filter.kind || null,
          action: filter.action || null,
          result: filter.result || null,
          limit: 100,
          cursor: pageParam,
        },
        signal,
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_cursor,
    refetchInterval: REFRESH_MS,
  });
