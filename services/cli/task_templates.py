"""First task files for people: every block with its unit, ready to be run."""

import re
from typing import Final

import msgspec

from shared.engines.openai_api import OPENAI
from shared.engines.table import PROFILES
from shared.gpu.model_memory import model_name

DOCKER: Final = "docker"
PROCESS: Final = "process"

_NOT_OF_A_NAME: Final = re.compile(r"[^a-z0-9._-]+")

TEMPLATE: Final = """\
# A task: which flags of {engine} serve this model best.
#   gpusteward validate FILE   what it would become, and what is missing
#   gpusteward run FILE        run it to its end
# Every field: docs/reference/task-file.md
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


ENDPOINT_TEMPLATE: Final = """\
# A task: measure a server that runs already, as it is.
#   gpusteward validate FILE   what it would become, and what is missing
#   gpusteward run FILE        run it to its end
# Every field: docs/reference/task-file.md
task_name: {name}
model:
  id_or_path: {model}  # the name by which the server lists it at /v1/models
base_runtime: {engine}  # the server's engine, such as vllm; openai: any that speaks OpenAI's API
endpoint:
  url: {url}  # or a list of servers to compare
  # api_key: SERVER_KEY          # a secret of the namespace, named under `secrets` too
  max_concurrency: 32            # no load has more requests in flight
  # max_requests_per_second: 10  # no load sends more; needs arrivals at a rate
  # node: gpu-01                 # where it runs, so that its GPUs are watched meanwhile
  # gpu_indices: [0, 1]          # which of them; or `pod`, or `container`
# secrets: [SERVER_KEY]

optimization:
  objective: maximize_throughput  # or minimize_latency, minimize_ttft, minimize_tpot, ...
  timeout_per_iteration: 1800     # seconds for one server

benchmark:
  traffic_scenarios: ["D(512,128)"]  # D(tokens in, tokens out); N(mean,spread)/(mean,spread)
  num_concurrency: [1, 8, 32]        # loads: requests at once
  max_time_per_iteration: 5          # minutes for each load
  max_requests_per_iteration: 200    # requests for each load, at most
"""


def endpoint_template(url: str, engine: str | None, model: str | None, name: str | None) -> str:
    """Return a task file as YAML that measures the server at `url`."""
    served_model = model or "served-model"
    return ENDPOINT_TEMPLATE.format(
        engine=engine or OPENAI,
        name=_quote(name or name_for("measured", served_model)),
        model=_quote(served_model),
        url=_quote(url),
    )


def task_template(engine: str, model: str | None, mode: str | None, name: str | None) -> str:
    """Return a task file as YAML. What is not given is the engine's usual.

    Texts are quoted as JSON, which YAML reads: a model's path may hold anything.
    """
    starter = PROFILES[engine].starter
    is_small = starter.is_small
    chosen_model = model or starter.model
    return TEMPLATE.format(
        engine=engine,
        name=_quote(name or name_for(engine, chosen_model)),
        model=_quote(chosen_model),
        mode=mode or (PROCESS if is_small else DOCKER),
        flags=starter.parameters,
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


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()
