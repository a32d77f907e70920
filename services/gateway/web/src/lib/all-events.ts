import * as endpoints from "@schemas/endpoints";
import type { StoredEvent } from "@schemas/messages";
import { api, type Query } from "./api-client";

const EVENTS_PER_PAGE = 1000;

/** Oldest first. A page may have few events, or none, of the many that it looked at: the cursor says where to go on. */
export async function allEvents(query: Query, signal: AbortSignal): Promise<StoredEvent[]> {
  const events: StoredEvent[] = [];
  for (let after = 0; ;) {
    const page = await api(endpoints.listEvents, {
      query: { ...query, after, limit: EVENTS_PER_PAGE },
      signal,
    });
    events.push(...page.events);
    if (page.cursor <= after) return events;
    after = page.cursor;
  }
}
