import { expect, test } from "vitest";
import type { StoredEvent } from "@schemas/messages";
import { eventSentence } from "./event-words";

const NAMES = { gpu: () => "GPU 3", experiment: () => "#7" };

const event = (type: string, body: Record<string, unknown>) =>
  ({ type, event: body }) as unknown as StoredEvent;
const sentence = (type: string, body: Record<string, unknown>) =>
  eventSentence(event(type, body), NAMES);

test("a fault says GPU, what happened, details and advice", () => {
  const body = {
    device_uuid: "GPU-1",
    xid: 79,
    detail: "fell off the bus",
    action: "restart_node",
  };

  expect(sentence("telemetry.health_changed", body)).toBe(
    "GPU 3: XID 79: fell off the bus. Advice: restart node",
  );
});

test("a cordon names the node, or the GPU that it is of", () => {
  const ofGpu = { device_uuid: "GPU-1", reason: "new fan" };

  expect(sentence("scheduler.device_cordoned", ofGpu)).toBe("GPU 3 was cordoned: new fan");
  expect(sentence("scheduler.device_cordoned", {})).toBe("The node was cordoned");
});

test("a grant names the holder, the person and where", () => {
  const body = { holder: "experiment/x/sweep#1", requester: "ada", devices: [{}, {}] };

  expect(
    sentence("scheduler.reservation_granted", {
      ...body,
      node_ids: ["gpu-01"],
      waited_seconds: 90,
    }),
  ).toBe("sweep #1 (ada) got 2 GPUs on gpu-01 after 1 min 30 s");
});

test("an experiment is named by its number, a score is short", () => {
  const body = { ordinal: 12, objective_score: 4444.444444445937 };

  expect(sentence("orchestrator.experiment_succeeded", body)).toBe(
    "#12 succeeded with a score of 4,444",
  );
  expect(sentence("executor.attempt_phase_changed", { phase: "warming_up" })).toBe(
    "#7 is warming up",
  );
});

test("an unknown event is told by the words of its type", () => {
  expect(sentence("scheduler.moon_phase_changed", {})).toBe("moon phase changed");
});
