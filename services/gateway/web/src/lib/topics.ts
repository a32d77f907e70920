import "@tanstack/react-query";

/** What an answer is about: the first part of every query key. */
export type Topic =
  | "audit"
  | "availability"
  | "cluster-devices"
  | "decisions"
  | "drifts"
  | "experiments"
  | "gpus"
  | "health"
  | "logs"
  | "me"
  | "members"
  | "metrics"
  | "namespaces"
  | "nodes"
  | "plan"
  | "pods"
  | "presets"
  | "readiness"
  | "reports"
  | "requests"
  | "reservations"
  | "secrets"
  | "series"
  | "sign-in"
  | "tasks"
  | "tokens";

declare module "@tanstack/react-query" {
  interface Register {
    queryKey: readonly [Topic, ...unknown[]];
  }
}

/** Every query about the topic, for `invalidateQueries`. */
export function aboutTopic(topic: Topic): { queryKey: readonly [Topic] } {
  return { queryKey: [topic] };
}

/** Topics whose answers the events of a service make stale. */
const STALE_AFTER: Record<string, Topic[]> = {
  "scheduler.": ["gpus", "nodes", "reservations", "namespaces", "drifts", "decisions"],
  "telemetry.": ["gpus", "nodes", "drifts"],
  "orchestrator.": ["tasks", "experiments"],
  "executor.": ["experiments", "nodes"],
  "results.": ["experiments", "reports"],
};

export function staleAfter(eventType: string): Topic[] {
  return Object.entries(STALE_AFTER).find(([prefix]) => eventType.startsWith(prefix))?.[1] ?? [];
}
