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

/** By a token, or by the code of a link. */
export type Credential = { token: string } | { code: string };

export async function logIn(credential: Credential): Promise<void> {
  await api("/login", { method: "POST", body: credential });
}

const OF_LINK = /^#login=([\w-]+)$/;

/** The code of a login link in the address, once: it is taken out, so that no history keeps it. */
export function takeLoginCode(): string | null {
  const code = OF_LINK.exec(window.location.hash)?.[1] ?? null;
  if (code !== null) window.history.replaceState(window.history.state, "", window.location.pathname + window.location.search);
  return code;
}

export function isLoggedOut(error: unknown): boolean {
  return error instanceof ApiError && error.problem.status === 401;
}
