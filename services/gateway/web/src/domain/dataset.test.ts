import { expect, test } from "vitest";
import type { DatasetUse, TraceUse } from "@schemas/messages";
import { datasetText, traceText } from "./dataset";

const USE: DatasetUse = {
  sha256: "ab12",
  format: "csv",
  rows: 9,
  used: 5,
  dropped: { duplicate: 3, too_long: 1 },
  length_unit: "words",
  mean_input_tokens: 4,
  mean_output_tokens: 3,
};

test("a dataset says what was used and why the rest was not", () => {
  expect(datasetText(USE)).toBe(
    "Dataset: 5 of 9 rows used, not used: 3 duplicates, 1 too long; lengths in words; SHA-256 ab12",
  );
  expect(datasetText({ ...USE, dropped: {}, length_unit: "engine_tokens" })).toBe(
    "Dataset: 5 of 9 rows used; lengths in tokens of the engine; SHA-256 ab12",
  );
});

test("a trace says how much of it is sent and what its prompts share", () => {
  const use = { requests: 12031, used: 100, prefix_share: 0.374, sha256: "ab12" } as TraceUse;
  expect(traceText(use)).toBe(
    "Trace: up to 100 of 12,031 requests, 37\u202f% of their prompts shared; SHA-256 ab12",
  );
});
