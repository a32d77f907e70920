import type { QueryClient } from "@tanstack/react-query";
import { aboutTopic } from "@/lib/topics";

/** Has GPUs and nodes asked for again, after a change of theirs. */
export function refreshFleet(client: QueryClient): Promise<unknown> {
  return Promise.all([
    client.invalidateQueries(aboutTopic("gpus")),
    client.invalidateQueries(aboutTopic("nodes")),
  ]);
}
