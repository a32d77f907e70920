"""First task files for people: every block with its unit, ready to be run."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from shared.gpu.model_memory import model_name

DOCKER: Final = "docker"
PROCESS: Final = "process"

# By engine: flags with the values to try, and what each does.
FLAGS: Final[Mapping[str, str]] = {
    "vllm": """\
  gpu-memory-utilization: [0.85, 0.92]  # share of the GPU's memory, 0 to 1
  max-num-seqs: [64, 128, 256]          # most sequences decoded together
  # max-num-batched-tokens: [2048, 8192]  # most tokens of one step: more favours throughput
  # tensor-parallel-size: [1, 2]          # GPUs that the model is divided over
""",
    "sglang": """\
  mem-fraction-static: [0.8, 0.88]      # share of the GPU's memory for weights and cache, 0 to 1
  max-running-requests: [64, 128, 256]  # most requests decoded together
  # chunked-prefill-size: [2048, 8192]    # most prompt tokens of one step
  # tp-size: [1, 2]                       # GPUs that the model is divided over
""",
    "llamacpp": """\
  parallel: [1, 2, 4]  # requests served at once (slots)
  threads: [2, 4]      # threads that generate
  # n-gpu-layers: [99]   # layers on the GPU
  # ubatch-size: [256, 512]  # tokens of one physical batch
""",
    "simulated": """\
  ttft-seconds: [0.02, 0.04]  # made up: time to the first token
  slots: [1, 2]               # made up: requests served at once
""",
}
MODELS: Final[Mapping[str, str]] = {
    "vllm": "Qwen/Qwen3-8B",
    "sglang": "Qwen/Qwen3-8B",
    "llamacpp": "smollm2-135m",
    "simulated": "simulated-model",
}
_SMALL: Final = frozenset({"llamacpp", "simulated"})  # engines of a try on a desk
_NOT_OF_A_NAME: Final = re.compile(r"[^a-z0-9._-]+")

TEMPLATE: Final = """\
# A task: which flags of {engine} serve this model best.
#   gpusteward validate FILE   what it would become, and what is missing
#   gpusteward run FILE        run it to its end
# Every field: docs/task-file.md
task_name: {name}
model:
  id_or_path: {model}  # id at Hugging Face, or a path below the node's model roots
base_runtime: {engine}
deployment_mode: {mode}  # process, docker, kubernetes or ome
# runtime_image_tag: "v1.2.3"  # of the engine's image; default: the one that the node prefers

# Each flag with the values to try. The configurations are their product; values that go together
# are rows of `configurations` instead: schemas/examples/vllm-configurations.yaml
parameters:
{flags}
# gpus:
#   count: 1               # GPUs of each experiment; default: what the flags need
#   min_memory_mb: 24000   # free memory of each, MiB; default: by a rule of thumb
#   models: ["H100"]       # part of a GPU model's name

optimization:
  strategy: auto                    # or grid_search, random, bayesian, successive_halving
  objective: maximize_throughput    # or minimize_latency, minimize_ttft, minimize_tpot, ...
  # constraints: "ttft:p99<500ms, error_rate<1%"  # what the best has to meet at every load
  # max_gpu_hours: 4                # nothing further starts after that
  timeout_per_iteration: {timeout}  # seconds for one experiment, its start included
  max_parallel: 1                   # experiments at once

benchmark:
  traffic_scenarios: ["{traffic}"]  # D(tokens in, tokens out); N(mean,spread)/(mean,spread)
  num_concurrency: {concurrency}    # loads: requests at once
  max_time_per_iteration: {minutes}         # minutes for each load
  max_requests_per_iteration: {requests}    # requests for each load, at most
"""


def task_template(engine: str, model: str | None, mode: str | None, name: str | None) -> str:
    """Return a task file as YAML. What is not given is the engine's usual.

    Texts are quoted as JSON, which YAML reads: a model's path may hold anything.
    """
    is_small = engine in _SMALL
    chosen = model or MODELS[engine]
    return TEMPLATE.format(
        engine=engine,
        name=_quoted(name or name_for(engine, chosen)),
        model=_quoted(chosen),
        mode=mode or (PROCESS if is_small else DOCKER),
        flags=FLAGS[engine],
        timeout=300 if is_small else 1800,
        traffic="D(32,16)" if is_small else "D(512,128)",
        concurrency="[1, 2]" if is_small else "[1, 8, 32]",
        minutes=0.1 if is_small else 5,
        requests=40 if is_small else 200,
    )


def name_for(engine: str, model: str) -> str:
    """Return a task's name: the last part of the model's, and the engine's."""
    last = model_name(model).lower()
    short = _NOT_OF_A_NAME.sub("-", last).strip("-.")[:100] or "model"
    return f"{short}-{engine}"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
