import { expect, test } from "vitest";
import type { TaskFile } from "@schemas/messages";
import { taskFileOf } from "./task-file-of";

test("a configuration's task file measures it alone, under the same load", () => {
  const task = {
    task_name: "chat",
    description: "",
    model: { id_or_path: "m" },
    base_runtime: "vllm",
    configurations: [{ "tensor-parallel-size": 1 }],
    parameters: { slots: [1, 2] },
    optimization: { strategy: "auto", max_iterations: 9, objective: "minimize_ttft" },
    benchmark: { traffic_scenarios: ["D(1,1)"] },
  } as unknown as TaskFile;

  expect(taskFileOf(task, 7, { slots: 2, "tensor-parallel-size": 1 })).toEqual({
    task_name: "chat-7",
    model: { id_or_path: "m" },
    base_runtime: "vllm",
    parameters: { slots: [2], "tensor-parallel-size": [1] },
    optimization: { objective: "minimize_ttft" },
    benchmark: { traffic_scenarios: ["D(1,1)"] },
  });
});

test("a configuration of one of several engines is a task with that engine", () => {
  const task = {
    task_name: "chat",
    model: { id_or_path: "m" },
    engines: [{ base_runtime: "vllm" }, { base_runtime: "sglang" }],
    env: { NCCL_ALGO: ["Ring", "Tree"] },
    parallel_config: { tp: [1, 2] },
    gpus: { models: ["H100"], power_limit_w: [300, 400] },
  } as unknown as TaskFile;
  const parameters = {
    base_runtime: "sglang",
    runtime_image_tag: "v0.5.6",
    model: "m-AWQ",
    "env.NCCL_ALGO": "Tree",
    "parallel_config.tp": 2,
    "gpus.power_limit_w": 300,
    "page-size": 32,
  };

  expect(taskFileOf(task, 2, parameters)).toEqual({
    task_name: "chat-2",
    base_runtime: "sglang",
    runtime_image_tag: "v0.5.6",
    model: "m-AWQ",
    env: { NCCL_ALGO: ["Tree"] },
    parallel_config: { tp: 2 },
    gpus: { models: ["H100"], power_limit_w: 300 },
    parameters: { "page-size": [32] },
    optimization: {},
  });
});
