import type { StoredEvent } from "@schemas/messages";
import { codeWord } from "./code-words";
import { groupBy } from "@/lib/group-by";

export interface PhaseSpan {
  phase: string;
  startMs: number;
  /** Of what goes on: the present. */
  endMs: number;
}

/** What an experiment went through, from its events; a phase that comes again is a span of its own. */
export function phaseSpans(events: StoredEvent[], nowMs: number): PhaseSpan[] {
  const spans: PhaseSpan[] = [];
  let open: PhaseSpan | null = null;
  const enter = (phase: string | null, atMs: number): void => {
    if (open) {
      open.endMs = atMs;
      if (open.endMs > open.startMs) spans.push(open);
    }
    open = phase === null ? null : { phase, startMs: atMs, endMs: nowMs };
  };
  for (const { type, occurred_at, event } of events) {
    const atMs = Date.parse(occurred_at);
    if (type === "orchestrator.experiment_waiting") enter("waiting", atMs);
    else if (type === "executor.attempt_started") enter("starting", atMs);
    else if (type === "executor.attempt_phase_changed") enter(String(event.phase), atMs);
    else if (ENDS.has(type)) enter(null, atMs);
  }
  const last = open as PhaseSpan | null;
  if (last && last.endMs > last.startMs) spans.push(last);
  return spans;
}

const ENDS = new Set([
  "executor.attempt_finished",
  "orchestrator.experiment_failed",
  "orchestrator.experiment_cancelled",
  "orchestrator.experiment_succeeded",
]);

export function byExperiment(events: StoredEvent[]): Map<string, StoredEvent[]> {
  const ofExperiments = events.filter(({ event }) => typeof event.experiment_id === "string");
  return groupBy(ofExperiments, ({ event }) => event.experiment_id as string);
}

/** The same phase has the same colour everywhere, of the categorical scale. */
export const PHASE_SERIES: Record<string, number> = {
  waiting: 8,
  starting: 5,
  pulling: 7,
  loading: 6,
  warming_up: 4,
  measuring: 3,
  draining: 1,
  tearing_down: 2,
  idle_held: 8,
};

/** Shaded behind a chart over time; a word that has no room would lie over its neighbours. */
export function phaseBands(spans: PhaseSpan[], colorOf: (token: string) => string) {
  const wholeMs = (spans.at(-1)?.endMs ?? 0) - (spans[0]?.startMs ?? 0);
  return spans.map((span) => ({
    name: span.endMs - span.startMs > wholeMs / 8 ? codeWord(span.phase) : "",
    startMs: span.startMs,
    endMs: span.endMs,
    color: colorOf(`series-${PHASE_SERIES[span.phase] ?? 8}`),
  }));
}
