import { expect, test } from "vitest";
import type { StoredEvent } from "@schemas/messages";
import { phaseSpans } from "./phases";

const at = (second: number) => new Date(second * 1000).toISOString();
const event = (type: string, second: number, phase?: string) =>
  ({ type, occurred_at: at(second), event: { phase } }) as unknown as StoredEvent;

test("phases last until the next one, the last until now", () => {
  const events = [
    event("orchestrator.experiment_waiting", 0),
    event("executor.attempt_started", 4),
    event("executor.attempt_phase_changed", 5, "loading"),
    event("executor.attempt_phase_changed", 9, "measuring"),
  ];

  expect(phaseSpans(events, 20_000)).toEqual([
    { phase: "waiting", startMs: 0, endMs: 4000 },
    { phase: "starting", startMs: 4000, endMs: 5000 },
    { phase: "loading", startMs: 5000, endMs: 9000 },
    { phase: "measuring", startMs: 9000, endMs: 20_000 },
  ]);
  expect(
    phaseSpans([...events, event("executor.attempt_finished", 12)], 20_000).at(-1)?.endMs,
  ).toBe(12_000);
});

test("without an event there is no phase", () => {
  expect(phaseSpans([], 1)).toEqual([]);
});
