import { infiniteQueryOptions, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import type {
  AuditList,
  DecisionList,
  Drift,
  MadeToken,
  NamespaceList,
  NamespaceRules,
  Replay,
  TokenRequest,
  TokenView,
} from "@schemas/messages";
import { allOf, api, ApiError, textAt } from "@/lib/api-client";

const REFRESH_MS = 5_000;

export const tokensOptions = queryOptions({
  queryKey: ["tokens"],
  queryFn: ({ signal }) => allOf<"tokens", TokenView>("/tokens", "tokens", { signal }),
  refetchInterval: REFRESH_MS,
});

export const namespacesOptions = queryOptions({
  queryKey: ["namespaces"],
  queryFn: ({ signal }) => api<NamespaceList>("/namespaces", { signal }),
});

export function driftsOptions(ended: boolean) {
  return queryOptions({
    queryKey: ["drifts", ended],
    queryFn: ({ signal }) => allOf<"drifts", Drift>("/drifts", "drifts", { query: { ended }, signal }),
    refetchInterval: REFRESH_MS,
  });
}

export interface AuditWanted {
  caller: string;
  path: string;
}

export function auditOptions({ caller, path }: AuditWanted) {
  return infiniteQueryOptions({
    queryKey: ["audit", caller, path],
    queryFn: ({ signal, pageParam }) =>
      api<AuditList>("/audit", {
        query: { caller: caller || null, path: path || null, limit: 100, cursor: pageParam },
        signal,
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_cursor,
    refetchInterval: REFRESH_MS,
  });
}

export function decisionsOptions(reservationId: string, afterId: number) {
  return infiniteQueryOptions({
    queryKey: ["decisions", reservationId, afterId],
    queryFn: ({ signal, pageParam }) =>
      api<DecisionList>("/decisions", {
        query: { reservation_id: reservationId || null, after_id: pageParam, limit: 100 },
        signal,
      }),
    initialPageParam: afterId,
    getNextPageParam: (last) => last.next_after_id,
  });
}

export function useReplay() {
  return useMutation({
    mutationFn: (query: { from_id: number | null; reservation_id: string | null; limit: number }) =>
      api<Replay>("/decisions/replay", { query }),
  });
}

/** What does not answer, by its name; the gateway itself answers, else this fails. */
export const readyOptions = queryOptions({
  queryKey: ["ready"],
  queryFn: async ({ signal }): Promise<{ missing: string[]; detail: string }> => {
    try {
      await textAt("/readyz", signal);
      return { missing: [], detail: "" };
    } catch (error) {
      const missing = error instanceof ApiError ? error.problem.details?.missing : undefined;
      if (!(error instanceof ApiError) || !Array.isArray(missing)) throw error;
      return { missing: missing.map(String), detail: error.problem.detail };
    }
  },
  refetchInterval: REFRESH_MS,
  retry: false,
});

export const metricsOptions = queryOptions({
  queryKey: ["metrics"],
  queryFn: ({ signal }) => textAt("/metrics", signal),
  refetchInterval: REFRESH_MS,
});

function useChange<T, R>(change: (given: T) => Promise<R>, stale: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => client.invalidateQueries({ queryKey: [stale] }),
  });
}

export const useCreateToken = () =>
  useChange((body: TokenRequest) => api<MadeToken>("/tokens", { method: "POST", body }), "tokens");

export const useRevokeToken = () =>
  useChange((tokenId: string) => api<TokenView>(`/tokens/${tokenId}`, { method: "DELETE" }), "tokens");

export const useSetNamespace = () =>
  useChange(
    ({ namespace, rules }: { namespace: string; rules: NamespaceRules }) =>
      api(`/namespaces/${encodeURIComponent(namespace)}`, { method: "POST", body: rules }),
    "namespaces",
  );
