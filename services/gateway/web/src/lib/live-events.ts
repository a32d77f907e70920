import { useSyncExternalStore } from "react";
import type { Query, QueryClient } from "@tanstack/react-query";
import type { StoredEvent } from "@schemas/messages";
import { openLiveSocket, type Connection } from "./live-socket";

export interface LiveStatus {
  connection: Connection;
  retryAt: number | null;
  /** When the newest message of any socket came, as `Date.now()` has it. */
  heardAt: number | null;
}

let status: LiveStatus = { connection: "connecting", retryAt: null, heardAt: null };
const watchers = new Set<() => void>();

export function setLiveStatus(change: Partial<LiveStatus>): void {
  status = { ...status, ...change };
  for (const tell of watchers) tell();
}

export function useLiveStatus(): LiveStatus {
  return useSyncExternalStore(
    (tell) => {
      watchers.add(tell);
      return () => watchers.delete(tell);
    },
    () => status,
  );
}

/** First parts of the query keys that events of a service make stale. */
const STALE_AFTER: Record<string, string[]> = {
  "scheduler.": ["gpus", "nodes", "reservations", "namespaces", "drifts", "decisions"],
  "telemetry.": ["gpus", "nodes", "drifts"],
  "orchestrator.": ["tasks", "experiments"],
  "executor.": ["experiments", "nodes"],
  "results.": ["experiments", "summaries", "reports"],
};

export function staleAfter(type: string): string[] {
  return Object.entries(STALE_AFTER).find(([prefix]) => type.startsWith(prefix))?.[1] ?? [];
}

type Listener = (event: StoredEvent) => void;
const listeners = new Set<Listener>();

/** Called with each event as it comes, none left out. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const GATHER_MS = 200;

const isRefreshed = (query: Query) =>
  query.observers.some(({ options }) => typeof options.refetchInterval === "number");

/** Follows the platform's events and has what they concern asked anew, once for many. */
export function followEvents(client: QueryClient): () => void {
  let cursor: number | null = null;
  let wasOpen = false;
  const stale = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;

  function refresh(): void {
    timer = undefined;
    const keys = [...stale];
    stale.clear();
    for (const key of keys) void client.invalidateQueries({ queryKey: [key] });
  }

  const socket = openLiveSocket<StoredEvent & { cursor: number | null }>({
    path: "/ws/events",
    query: () => ({ after: cursor }),
    onMessage(event) {
      cursor = event.cursor ?? cursor;
      setLiveStatus({ heardAt: Date.now() });
      for (const tell of listeners) tell(event);
      for (const key of event.cursor === null ? [] : staleAfter(event.type)) stale.add(key);
      if (stale.size > 0) timer ??= setTimeout(refresh, GATHER_MS);
    },
    onConnection(connection, retryAt) {
      setLiveStatus({ connection, retryAt });
      if (connection !== "open") return;
      // Before the first event there is no cursor to go on after; readings have none at all.
      // What is asked anew by the clock is then under way already, and need not be asked twice.
      void client.invalidateQueries(wasOpen ? {} : { predicate: (query) => !isRefreshed(query) });
      wasOpen = true;
    },
  });
  return () => {
    clearTimeout(timer);
    socket.close();
  };
}
