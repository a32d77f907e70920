import type { Problem } from "@schemas/messages";

const API = "/api/v1";

/** What the gateway answered instead, as RFC 9457 has it; `problem.path` names the wrong field. */
export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
    this.name = "ApiError";
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export interface Call {
  method?: "GET" | "POST" | "DELETE";
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
}

let csrfToken: string | null = null;

/** Every later request that changes something shows it. */
export function setCsrfToken(token: string | null): void {
  csrfToken = token;
}

/** Raises ApiError. */
export async function api<T>(path: string, call: Call = {}): Promise<T> {
  const { method = "GET", body, signal } = call;
  const headers = new Headers({ Accept: "application/json" });
  if (body !== undefined) headers.set("Content-Type", "application/json");
  if (method !== "GET") {
    headers.set("Idempotency-Key", crypto.randomUUID());
    if (csrfToken) headers.set("X-CSRF-Token", csrfToken);
  }
  const init: RequestInit = { method, headers, signal: signal ?? null };
  if (body !== undefined) init.body = typeof body === "string" ? body : JSON.stringify(body);
  const text = await textOf(API + path + queryString(call.query), init);
  return (text ? JSON.parse(text) : undefined) as T;
}

/** What the gateway answers in other forms than JSON: `/metrics`, `/readyz`, a report. Raises ApiError. */
export function textAt(path: string, signal?: AbortSignal): Promise<string> {
  return textOf(path, { signal: signal ?? null });
}

async function textOf(url: string, init: RequestInit): Promise<string> {
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(unreachable());
  }
  const text = await response.text();
  if (!response.ok) throw new ApiError(problemIn(response, text));
  return text;
}

/** Every page of a list, as one. */
export async function allOf<K extends string, T>(
  path: string,
  key: K,
  call: Call = {},
): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | null = null;
  do {
    const query: Query = { ...call.query, cursor };
    const page: Record<K, T[]> & { next_cursor: string | null } = await api(path, {
      ...call,
      query,
    });
    found.push(...page[key]);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return found;
}

export function queryString(query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text && `?${text}`;
}

function problemIn(response: Response, text: string): Problem {
  try {
    const found = JSON.parse(text) as Partial<Problem>;
    if (typeof found.code === "string" && typeof found.detail === "string") return found as Problem;
  } catch {
    // A proxy before the gateway answers in its own words.
  }
  return {
    type: "about:blank",
    title: response.statusText,
    status: response.status,
    detail: `the gateway answered with status ${response.status}`,
    code: "internal",
  };
}

function unreachable(): Problem {
  return {
    type: "about:blank",
    title: "Unreachable",
    status: 0,
    detail: "the gateway cannot be reached; trying again",
    code: "unavailable",
  };
}
