import type { EventList, StoredEvent } from "@schemas/messages";
import { api, type Query } from "./api-client";

const EVENTS_PER_PAGE = 1000;

/** Oldest first. A page may have few events, or none, of the many that it looked at: the cursor says where to go on. */
export async function allEvents(query: Query, signal: AbortSignal): Promise<StoredEvent[]> {
  const found: StoredEvent[] = [];
  for (let after = 0; ; ) {
    const page = await api<EventList>("/events", { query: { ...query, after, limit: EVENTS_PER_PAGE }, signal });
    found.push(...page.events);
    if (page.cursor <= after) return found;
    after = page.cursor;
  }
}
