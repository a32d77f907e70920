import { expect, test } from "vitest";
import { inputSentences, outcomeSentences } from "./decision-words";

const NAMES = new Map([
  ["r1", "experiment/x/sweep#2"],
  ["r2", "marek"],
]);

test("a grant says who gets which GPUs of which node", () => {
  const devices = [0, 1, 2].map((index) => ({ device: { index } }));
  const placed = { nodes: [{ node_id: "gpu-03", devices }] };

  expect(outcomeSentences([{ type: "grant", reservation_id: "r1", placed }], NAMES)).toEqual([
    "sweep #2 gets gpu-03: 0-2",
  ]);
});

test("a refusal says why, a preemption for whom", () => {
  const outcomes = [
    { type: "rejection", reservation_id: "r2", reasons: [{ message: "no GPU is an A100" }] },
    { type: "preempt", reservation_id: "r1", for_reservation_id: "r2" },
    { type: "grant", reservation_id: "a-long-unknown-id" },
  ];

  expect(outcomeSentences(outcomes, NAMES)).toEqual([
    "marek is refused: no GPU is an A100",
    "sweep #2 gives way to marek",
    "reservation …known-id gets GPUs",
  ]);
});

test("inputs are told where they are about somebody", () => {
  const inputs = [
    { type: "device_seen" },
    { type: "request_queued", entry: { reservation_id: "r2", request: { gpus: 8, nodes: 2 } } },
    { type: "lease_ended", reservation_id: "r1" },
  ];

  expect(inputSentences(inputs, NAMES)).toEqual([
    "marek asks for 16 GPUs",
    "sweep #2 holds nothing any more",
  ]);
  expect(inputSentences({ device_seen: 7 }, NAMES)).toEqual([]);
});
