import { expect, test } from "vitest";
import { FIRST_MEASUREMENT, measurementDraft, nameFor, urlsOf } from "./measure";

const FORM = { ...FIRST_MEASUREMENT, urls: "http://gpu-01:8000", model: "org/Qwen3-8B" };

test("a server and a model make a task file", () => {
  expect(measurementDraft(FORM)).toEqual({
    task_name: "qwen3-8b-measured",
    deployment_mode: "endpoint",
    model: { id_or_path: "org/Qwen3-8B" },
    base_runtime: "openai",
    endpoint: { url: "http://gpu-01:8000", max_concurrency: 32 },
    benchmark: {
      traffic_scenarios: ["D(512,128)"],
      num_concurrency: [1, 8, 32],
      max_time_per_iteration: 5,
      max_requests_per_iteration: 200,
    },
  });
});

test("several servers, a key and GPUs are in the file", () => {
  const draft = measurementDraft({
    ...FORM,
    urls: "http://a:1\n http://b:2,",
    secret: "SERVER_KEY",
    node: "gpu-01",
    gpuIndices: [0, 1],
    maxConcurrency: null,
  });

  expect(draft?.endpoint).toEqual({
    url: ["http://a:1", "http://b:2"],
    api_key: "SERVER_KEY",
    node: "gpu-01",
    gpu_indices: [0, 1],
  });
  expect(draft?.secrets).toEqual(["SERVER_KEY"]);
});

test("GPUs without a node are left out", () => {
  expect(measurementDraft({ ...FORM, gpuIndices: [3] })?.endpoint).toEqual({
    url: "http://gpu-01:8000",
    max_concurrency: 32,
  });
});

test("without a server or a model there is no file yet", () => {
  expect(measurementDraft({ ...FORM, urls: " " })).toBeNull();
  expect(measurementDraft({ ...FORM, model: "" })).toBeNull();
  expect(urlsOf(" http://a:1 ,http://b:2 ")).toEqual(["http://a:1", "http://b:2"]);
  expect(nameFor("")).toBe("server-measured");
});
