import { queryOptions, useQuery } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { Me } from "@schemas/messages";
import { api, setCsrfToken } from "@/lib/api-client";

export const meOptions = queryOptions({
  queryKey: ["me"],
  queryFn: async ({ signal }) => {
    const me = await api(endpoints.showMe, { signal });
    setCsrfToken(me.csrf_token);
    return me;
  },
  staleTime: Infinity,
});

export function useMe(): Me | undefined {
  return useQuery(meOptions).data;
}

/** Whether anything may be changed here; what exactly, the gateway decides. */
export function useMayChange(): boolean {
  const me = useMe();
  return me !== undefined && me.role !== "viewer";
}

export function useIsAdmin(): boolean {
  return useMe()?.role === "admin";
}

/** Where somebody sets limits, tokens and members; of an admin those of its token, beside all others. */
export function ownNamespaces(me: Me): string[] {
  if (me.role === "admin") return me.namespaces;
  return me.namespaces.filter((name) => (me.roles[name] ?? me.role) === "owner");
}

export function owns(me: Me | undefined, namespace: string): boolean {
  return me !== undefined && (me.role === "admin" || ownNamespaces(me).includes(namespace));
}
