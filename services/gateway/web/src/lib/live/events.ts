import { useSyncExternalStore } from "react";
import type { Query, QueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { StoredEvent } from "@schemas/messages";
import { pause } from "../pause";
import { openLiveSocket, type Connection } from "./socket";
import { aboutTopic, staleAfter, type Topic } from "../topics";

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

/** One that is not in the log, and so not repeated, has no cursor. */
export type LiveEvent = Omit<StoredEvent, "cursor"> & { cursor: number | null };

type Listener = (event: LiveEvent) => void;
const listeners = new Set<Listener>();

/** Called with each event as it comes, none left out. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const GATHER_MS = 200;
const ANSWERED_WITHIN_MS = 5_000;

const isRefreshed = (query: Query) =>
  query.observers.some(({ options }) => typeof options.refetchInterval === "number");

/**
 * Follows the platform's events and has what they concern asked anew: once for many, and not again before it is
 * answered, since asking anew cuts off the question before.
 */
export function followEvents(client: QueryClient): () => void {
  let cursor: number | null = null;
  let wasOpen = false;
  const stale = new Set<Topic>();
  let timer: ReturnType<typeof setTimeout> | undefined; // also while what it asked is not answered
  let isClosed = false;

  async function refresh(): Promise<void> {
    const topics = [...stale];
    stale.clear();
    const answered = topics.map((topic) => client.invalidateQueries(aboutTopic(topic)));
    await Promise.race([Promise.allSettled(answered), pause(ANSWERED_WITHIN_MS)]);
    timer = undefined;
    refreshSoon();
  }

  function refreshSoon(): void {
    if (stale.size > 0 && !isClosed) timer ??= setTimeout(() => void refresh(), GATHER_MS);
  }

  const socket = openLiveSocket<LiveEvent>({
    path: endpoints.watchEvents.path,
    query: () => ({ after: cursor }),
    onMessage(event) {
      cursor = event.cursor ?? cursor;
      setLiveStatus({ heardAt: Date.now() });
      for (const tell of listeners) tell(event);
      for (const topic of event.cursor === null ? [] : staleAfter(event.type)) stale.add(topic);
      refreshSoon();
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
    isClosed = true;
    clearTimeout(timer);
    socket.close();
  };
}
