import "@tanstack/react-query";

/** What an answer is about: the first part of every query key. */
export type Topic =
  | "audit"
  | "availability"
  | "cluster-devices"
  | "datasets"
  | "decisions"
  | "drifts"
  | "events"
  | "engines"
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
  "scheduler.": ["gpus", "nodes", "reservations", "namespaces", "drifts", "decisions", "events"],
  "telemetry.": ["gpus", "nodes", "drifts", "events"],
  "orchestrator.": ["tasks", "experiments"],
  "executor.": ["experiments", "nodes"],
  "results.": ["experiments", "reports"],
};

/** What nodes say again and again; what it changes is told by other events, or asked by the clock. */
const REPEATED = ["telemetry.inventory_reported", "executor.executor_reported"];

export function staleAfter(eventType: string): Topic[] {
  if (REPEATED.includes(eventType)) return [];
  return Object.entries(STALE_AFTER).find(([prefix]) => eventType.startsWith(prefix))?.[1] ?? [];
}
