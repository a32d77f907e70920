import { expect, test } from "vitest";
import type { TrustVerdict } from "@schemas/messages";
import { trustWords } from "./trust-words";

const verdict: TrustVerdict = {
  winner: 3,
  noise_floor_percent: 2.14,
  ties: [],
  repeated: [
    {
      ordinal: 3,
      runs: 4,
      mean_score: 10,
      spread_percent: 0.8,
      behind_percent: 0,
      undecided_because: "",
    },
    {
      ordinal: 5,
      runs: 3,
      mean_score: 8.8,
      spread_percent: 1.1,
      behind_percent: 12,
      undecided_because: "",
    },
  ],
  set_aside: [{ ordinal: 7, reason: "throttled" }],
  replays: 3,
  worst_score: 9.5,
  improvement_percent: 1.2,
  incomplete_because: "",
  front: [],
  order: [],
  engines: [],
};

test("a winner is told with its lead, its runs and their noise", () => {
  expect(trustWords(verdict)).toBe(
    "ahead of experiment 5 by 12 %, more than chance; measured 4 times ± 0.8 %; noise floor 2.14 %; " +
      "at worst 9.5 in 3 runs with other requests; another may be better by 1.2 % at most; experiment 7 set aside",
  );
});

test("one of several that are equal is not said to be ahead", () => {
  expect(trustWords({ ...verdict, ties: [1, 2, 5] })).toMatch(
    /^cannot be told from experiments 1, 2 and 5 and changes/,
  );
});

test("what is not decided is told with its reason, and no lead", () => {
  const rival = { ordinal: 5, runs: 3, mean_score: 8.8, spread_percent: 1.1, behind_percent: 12 };
  const order = [
    { ...rival, undecided_because: "the load generator's own time (by 15 % at most)" },
  ];

  expect(trustWords({ ...verdict, order })).toMatch(
    /^not decided: experiment 5 may be better \(the load generator's own time \(by 15 % at most\)\); measured 4 times/,
  );
});

test("engines of one task are told apart by more than the noise, or not", () => {
  const engine = { runtime_image_tag: "v1", model: null, ordinal: 2, runs: 2, mean_score: 1 };
  const engines = [
    {
      ...engine,
      base_runtime: "sglang",
      behind_percent: 0,
      noise_percent: null,
      is_decided: false,
    },
    { ...engine, base_runtime: "vllm", behind_percent: 22, noise_percent: 3, is_decided: true },
    { ...engine, base_runtime: "lmdeploy", behind_percent: 1, noise_percent: 3, is_decided: false },
  ];

  const words = trustWords({ ...verdict, engines });

  expect(words).toContain("beats vllm v1 by 22 % (noise 3 %)");
  expect(words).toContain("cannot be told from lmdeploy v1 (noise 3 %)");
});
