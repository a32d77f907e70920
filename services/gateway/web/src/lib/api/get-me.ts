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

export function useIsAdmin(): boolean {
  return useMe()?.role === "admin";
}
