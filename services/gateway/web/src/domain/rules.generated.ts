// Written by `make docs` from the rules of the services; not to be edited.

/** How people start an engine; a switch that is off has a `--no-` form, unless it is plain. */
export interface EngineLaunch {
  program: readonly string[];
  modelFlag: string | null;
  hubFlag: string | null;
  hasNegativeSwitches: boolean;
  plainSwitches: readonly string[];
}

export const ENGINES: readonly string[] = ["llamacpp", "lmdeploy", "sglang", "simulated", "vllm"];

export const LAUNCHES: Partial<Record<string, EngineLaunch>> = {
  "llamacpp": {
    "program": [
      "llama-server",
      "--metrics"
    ],
    "modelFlag": "--model",
    "hubFlag": "--hf-repo",
    "hasNegativeSwitches": true,
    "plainSwitches": [
      "backend-sampling",
      "check-tensors",
      "cpu-moe",
      "cpu-moe-draft",
      "embedding",
      "embeddings",
      "ignore-eos",
      "metrics",
      "mlock",
      "no-host",
      "offline",
      "rerank",
      "reranking",
      "spec-draft-cpu-moe",
      "special",
      "spm-infill",
      "swa-full"
    ]
  },
  "lmdeploy": {
    "program": [
      "lmdeploy",
      "serve",
      "api_server"
    ],
    "modelFlag": null,
    "hubFlag": null,
    "hasNegativeSwitches": false,
    "plainSwitches": []
  },
  "sglang": {
    "program": [
      "python3",
      "-m",
      "sglang.launch_server",
      "--enable-metrics"
    ],
    "modelFlag": "--model-path",
    "hubFlag": null,
    "hasNegativeSwitches": false,
    "plainSwitches": []
  },
  "vllm": {
    "program": [
      "vllm",
      "serve"
    ],
    "modelFlag": null,
    "hubFlag": null,
    "hasNegativeSwitches": true,
    "plainSwitches": [
      "aggregate-engine-logging",
      "data-parallel-multi-port-external-lb",
      "disable-log-requests",
      "disable-log-stats",
      "grpc",
      "headless"
    ]
  }
};

export const MAX_OBJECTIVES = 4;
