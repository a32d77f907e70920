// Written by `make docs` from the rules of the services; not to be edited.
/* eslint-disable lingui/no-unlocalized-strings -- programs are in no language */

/** How people start an engine; a switch that is off has a `--no-` form, unless it is plain. */
export interface EngineLaunch {
  program: readonly string[];
  modelFlag: string | null;
  hubFlag: string | null;
  hasNegativeSwitches: boolean;
  hasUnderscores: boolean;
  plainSwitches: readonly string[];
}

export const ENGINES: readonly string[] = ["llamacpp", "lmdeploy", "sglang", "simulated", "trtllm", "vllm"];

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
    ],
    "hasUnderscores": false
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
    "plainSwitches": [],
    "hasUnderscores": false
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
    "plainSwitches": [],
    "hasUnderscores": false
  },
  "trtllm": {
    "program": [
      "python3",
      "-c",
      "import json, os, sys, tempfile\nsettings = {\"return_perf_metrics\": True, \"enable_iter_perf_stats\": True}\nwords, rest = sys.argv[1:], []\nwhile words:\n    word = words.pop(0)\n    if word.startswith(\"--\") and word.endswith(\"_config\"):\n        settings[word[2:]] = json.loads(words.pop(0))\n    else:\n        rest.append(word)\nfile = tempfile.NamedTemporaryFile(\"w\", suffix=\".yaml\", delete=False)\njson.dump(settings, file)\nfile.close()\nos.execvp(\"trtllm-serve\", [\"trtllm-serve\", *rest, \"--config\", file.name])\n"
    ],
    "modelFlag": null,
    "hubFlag": null,
    "hasNegativeSwitches": false,
    "plainSwitches": [],
    "hasUnderscores": true
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
    ],
    "hasUnderscores": false
  }
};

export const MAX_OBJECTIVES = 4;
