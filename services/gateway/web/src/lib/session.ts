import { queryOptions, useQuery } from "@tanstack/react-query";
import type { Me } from "@schemas/messages";
import { api, ApiError, setCsrfToken } from "./api-client";

export const meOptions = queryOptions({
  queryKey: ["me"],
  queryFn: async ({ signal }) => {
    const me = await api<Me>("/me", { signal });
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

export async function logIn(token: string): Promise<void> {
  await api("/login", { method: "POST", body: { token } });
}

export function isLoggedOut(error: unknown): boolean {
  return error instanceof ApiError && error.problem.status === 401;
}
