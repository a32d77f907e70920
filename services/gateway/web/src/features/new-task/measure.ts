import type { Draft } from "./draft";

/** What the form of a measurement asks; texts are as typed. */
export interface Measurement {
  name: string;
  /** One address, or several with spaces or lines between them. */
  urls: string;
  model: string;
  /** The name of a secret of the namespace; empty: the server asks for no key. */
  secret: string;
  node: string;
  gpuIndices: number[];
  maxConcurrency: number | null;
  scenario: string;
  concurrencies: number[];
  minutes: number | null;
  requests: number | null;
}

export const FIRST_MEASUREMENT: Measurement = {
  name: "",
  urls: "",
  model: "",
  secret: "",
  node: "",
  gpuIndices: [],
  maxConcurrency: 32,
  scenario: "D(512,128)",
  concurrencies: [1, 8, 32],
  minutes: 5,
  requests: 200,
};

export const urlsOf = (text: string) => text.split(/[\s,]+/).filter(Boolean);

/** `model-measured`, of letters that a task's name may have. */
export const nameFor = (model: string) =>
  `${
    model
      .split("/")
      .pop()
      ?.toLowerCase()
      .replace(/[^a-z0-9._-]+/g, "-")
      .replace(/^[-.]+|[-.]+$/g, "")
      .slice(0, 100) || "server"
  }-measured`;

/** The task file of a measurement; null as long as it names no server or no model. */
export function measurementDraft(form: Measurement): Draft | null {
  const urls = urlsOf(form.urls);
  if (urls.length === 0 || !form.model.trim()) return null;
  return {
    task_name: form.name.trim() || nameFor(form.model.trim()),
    deployment_mode: "endpoint",
    model: { id_or_path: form.model.trim() },
    base_runtime: "openai",
    endpoint: {
      url: urls.length === 1 ? urls[0] : urls,
      ...(form.secret ? { api_key: form.secret } : {}),
      ...(form.maxConcurrency === null ? {} : { max_concurrency: form.maxConcurrency }),
      ...(form.node ? { node: form.node } : {}),
      ...(form.node && form.gpuIndices.length > 0 ? { gpu_indices: form.gpuIndices } : {}),
    },
    ...(form.secret ? { secrets: [form.secret] } : {}),
    benchmark: {
      traffic_scenarios: [form.scenario],
      num_concurrency: form.concurrencies,
      ...(form.minutes === null ? {} : { max_time_per_iteration: form.minutes }),
      ...(form.requests === null ? {} : { max_requests_per_iteration: form.requests }),
    },
  };
}
