import { ApiError } from "./api-client";

const OF_LINK = /^#login=([\w-]+)$/;

/** The code of a login link in the address, once: it is taken out, so that no history keeps it. */
export function takeLoginCode(): string | null {
  const code = OF_LINK.exec(window.location.hash)?.[1] ?? null;
  if (code !== null)
    window.history.replaceState(
      window.history.state,
      "",
      window.location.pathname + window.location.search,
    );
  return code;
}

export function isLoggedOut(error: unknown): boolean {
  return error instanceof ApiError && error.problem.status === 401;
}
