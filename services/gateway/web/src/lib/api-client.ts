import { t } from "@lingui/core/macro";
import type { Endpoint } from "@schemas/endpoints";
import type { Problem } from "@schemas/messages";
import { randomUuid } from "./random-uuid";

/** What the gateway answered instead, as RFC 9457 has it; `problem.path` names the wrong field. */
export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
    this.name = "ApiError";
  }
}

type QueryValue = string | number | boolean | null | undefined;

/** What a question may ask by `Names`. */
export type Query<Names extends string = string> = { [name in Names]?: QueryValue };

/** What an operation is called with; a body of text is sent as it is. */
export type Call<Place extends string, Names extends string, Body> = {
  query?: Query<Names>;
  body?: Body | string;
  signal?: AbortSignal;
} & ([Place] extends [never] ? unknown : { place: Record<Place, string> });

let csrfToken: string | null = null;

/** Every later request that changes something shows it. */
export function setCsrfToken(token: string | null): void {
  csrfToken = token;
}

/**
 * Keys of changes that had no final answer, by what was sent: sent again, the gateway does it once,
 * also where the first did arrive and only its answer was lost.
 */
const unansweredKeys = new Map<string, string>();
const KEPT_MS = 300_000;

/** Calls an operation of the API. Raises ApiError. */
export async function api<Place extends string, Names extends string, Body, Answer>(
  endpoint: Endpoint<Place, Names, Body, Answer>,
  call: Call<Place, Names, Body>,
): Promise<Answer> {
  const { method } = endpoint;
  const { body, signal } = call;
  const headers = new Headers({ Accept: "application/json" });
  if (body !== undefined) headers.set("Content-Type", "application/json");
  const init: RequestInit = { method, headers, signal: signal ?? null };
  if (body !== undefined) init.body = typeof body === "string" ? body : JSON.stringify(body);
  const address = addressOf(endpoint, call) + queryString(call.query);
  const text = await (method === "GET" ? textOf(address, init) : change(address, init, headers));
  return (text ? JSON.parse(text) : undefined) as Answer;
}

async function change(address: string, init: RequestInit, headers: Headers): Promise<string> {
  const sent = JSON.stringify([init.method, address, init.body]);
  const key = unansweredKeys.get(sent) ?? randomUuid();
  unansweredKeys.set(sent, key);
  // Not for good: what was sent may be a secret.
  setTimeout(() => unansweredKeys.delete(sent), KEPT_MS);
  headers.set("Idempotency-Key", key);
  if (csrfToken) headers.set("X-CSRF-Token", csrfToken);
  try {
    const text = await textOf(address, init);
    unansweredKeys.delete(sent);
    return text;
  } catch (error) {
    if (error instanceof ApiError && isFinal(error.problem)) unansweredKeys.delete(sent);
    throw error;
  }
}

const isFinal = ({ status }: Problem) => status >= 400 && status < 500;

/** Of a removal: what is gone already, by somebody else or an earlier try, is removed. */
export async function unlessGone(removal: Promise<unknown>): Promise<void> {
  try {
    await removal;
  } catch (error) {
    if (!(error instanceof ApiError && error.problem.code === "not_found")) throw error;
  }
}

/**
 * Sends a file as it is, and tells how much of it is there. Raises ApiError.
 *
 * `fetch` does not say how far it is.
 */
export function upload<Place extends string, Names extends string, Answer>(
  endpoint: Endpoint<Place, Names, unknown, Answer>,
  file: File,
  call: Call<Place, Names, never>,
  onProgress: (share: number) => void,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(endpoint.method, addressOf(endpoint, call) + queryString(call.query));
    request.setRequestHeader("Accept", "application/json");
    if (csrfToken) request.setRequestHeader("X-CSRF-Token", csrfToken);
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0);
    request.onerror = () => reject(new ApiError(unreachable()));
    request.onload = () => {
      if (request.status < 400) resolve(JSON.parse(request.responseText) as Answer);
      else reject(new ApiError(problemIn(request, request.responseText)));
    };
    request.send(file);
  });
}

/** What the gateway answers in other forms than JSON: metrics, readiness, a report. Raises ApiError. */
export function textAt<Place extends string, Names extends string, Body>(
  endpoint: Endpoint<Place, Names, Body, unknown>,
  call: Call<Place, Names, Body>,
): Promise<string> {
  return textOf(addressOf(endpoint, call), { signal: call.signal ?? null });
}

function addressOf(endpoint: { path: string }, call: object): string {
  const place = "place" in call ? (call.place as Record<string, string>) : {};
  return endpoint.path.replace(/{(\w+)}/g, (_, name: string) =>
    encodeURIComponent(place[name] ?? ""),
  );
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

/** Every page of a list, as one; `itemsOf` takes the items from an answer. */
export async function allOf<
  Place extends string,
  Names extends string,
  Answer extends { next_cursor: string | null },
  Item,
>(
  endpoint: Endpoint<Place, Names | "cursor", undefined, Answer>,
  itemsOf: (answer: Answer) => readonly Item[],
  call: Call<Place, Names | "cursor", undefined>,
): Promise<Item[]> {
  const items: Item[] = [];
  let cursor: string | null = null;
  do {
    const query: Query<Names | "cursor"> = { ...call.query, cursor };
    const page: Answer = await api(endpoint, { ...call, query });
    items.push(...itemsOf(page));
    cursor = page.next_cursor;
  } while (cursor !== null);
  return items;
}

export function queryString(query: Query = {}): string {
  const entries = Object.entries(query).filter(
    ([, value]) => value !== null && value !== undefined,
  );
  const text = new URLSearchParams(
    entries.map(([name, value]) => [name, String(value)]),
  ).toString();
  return text && `?${text}`;
}

function problemIn(response: { status: number; statusText: string }, text: string): Problem {
  try {
    const problem = JSON.parse(text) as Partial<Problem>;
    if (typeof problem.code === "string" && typeof problem.detail === "string")
      return problem as Problem;
  } catch {
    // A proxy before the gateway answers in its own words.
  }
  return {
    type: "about:blank",
    title: response.statusText,
    status: response.status,
    detail: t`the gateway responded with status ${response.status}`,
    code: "internal",
  };
}

function unreachable(): Problem {
  return {
    type: "about:blank",
    title: t`Unreachable`,
    status: 0,
    detail: t`the gateway cannot be reached: is the network there, and the gateway running?`,
    code: "unavailable",
  };
}
