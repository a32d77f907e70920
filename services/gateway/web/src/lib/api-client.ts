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

/** Calls an operation of the API. Raises ApiError. */
export async function api<Place extends string, Names extends string, Body, Answer>(
  endpoint: Endpoint<Place, Names, Body, Answer>,
  call: Call<Place, Names, Body>,
): Promise<Answer> {
  const { method } = endpoint;
  const { body, signal } = call;
  const headers = new Headers({ Accept: "application/json" });
  if (body !== undefined) headers.set("Content-Type", "application/json");
  if (method !== "GET") {
    headers.set("Idempotency-Key", randomUuid());
    if (csrfToken) headers.set("X-CSRF-Token", csrfToken);
  }
  const init: RequestInit = { method, headers, signal: signal ?? null };
  if (body !== undefined) init.body = typeof body === "string" ? body : JSON.stringify(body);
  const text = await textOf(addressOf(endpoint, call) + queryString(call.query), init);
  return (text ? JSON.parse(text) : undefined) as Answer;
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

function problemIn(response: Response, text: string): Problem {
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
    detail: `the gateway responded with status ${response.status}`,
    code: "internal",
  };
}

function unreachable(): Problem {
  return {
    type: "about:blank",
    title: "Unreachable",
    status: 0,
    detail: "the gateway cannot be reached; retrying",
    code: "unavailable",
  };
}
