import { expect, test } from "vitest";
import type { EngineChoice } from "@schemas/messages";
import {
  rowNames,
  rowsOf,
  withCell,
  withEngine,
  withName,
  withoutName,
  withRowAdded,
  withRows,
} from "./engine-draft";

const VLLM = {
  name: "vllm",
  deployment_mode: "docker",
  model: "Qwen/Qwen3-8B",
  parameters: { "max-num-seqs": [64, 128] },
} as unknown as EngineChoice;

test("another engine brings its model, mode and parameters, and the load stays", () => {
  const draft = {
    task_name: "mine",
    base_runtime: "simulated",
    model: { id_or_path: "simulated-model" },
    parameters: { slots: [1] },
    configurations: [{ slots: 2 }],
    presets: ["balanced"],
    benchmark: { num_concurrency: [8] },
  };

  expect(withEngine(draft, VLLM)).toEqual({
    task_name: "mine",
    base_runtime: "vllm",
    deployment_mode: "docker",
    model: { id_or_path: "Qwen/Qwen3-8B" },
    parameters: { "max-num-seqs": [64, 128] },
    benchmark: { num_concurrency: [8] },
  });
});

test("a list of configurations grows by names and rows", () => {
  const named = withName(withName([], "tp"), "seqs");
  const filled = withCell(withCell(named, 0, "tp", 1), 0, "seqs", 64);
  const two = withCell(withRowAdded(filled), 1, "tp", 2);

  expect(two).toEqual([
    { tp: 1, seqs: 64 },
    { tp: 2, seqs: 64 },
  ]);
  expect(rowNames(two)).toEqual(["tp", "seqs"]);
  expect(withoutName(two, "seqs")).toEqual([{ tp: 1 }, { tp: 2 }]);
});

test("a list without rows leaves no field in the file", () => {
  expect(withRows({ task_name: "t", configurations: [{ tp: 1 }] }, [])).toEqual({ task_name: "t" });
  expect(withoutName([{ tp: 1 }], "tp")).toEqual([]);
  expect(rowsOf({ configurations: "none" })).toEqual([]);
});
