"""vLLM: how it is started, what a task may give it, what it reports."""

import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.executor.attempts import FailureKind
from shared.engines.launch import EngineLaunch
from shared.engines.metrics import MetricNames
from shared.engines.profile import EngineProfile, Requirement, StarterTask, StateReset
from shared.engines.vllm.allow_list import VLLM
from shared.engines.vllm.combinations import find_conflicts
from shared.engines.vllm.flag_notes import NOTES
from shared.engines.vllm.request_log import VllmLog
from shared.engines.vllm.task_fields import FIELDS
from shared.known_failure import known_failure


def rank_flags(rank: int | str, size: int, address: str, port: int) -> Mapping[str, Any]:
    """Return the flags of `vllm serve --help`, "multi-node"."""
    headless = {"headless": True} if rank else {}
    return {
        "nnodes": size,
        "node-rank": rank,
        "master-addr": address,
        "master-port": port,
        **headless,
    }


PROFILE: Final = EngineProfile(
    name="vllm",
    is_predicted=True,
    title="vLLM",
    launch=EngineLaunch(
        program=("vllm", "serve"),
        model_flag=None,
        # The entrypoint of its own has changed between versions, this has not.
        entrypoint=("vllm", "serve"),
        repository="vllm/vllm-openai",
        tag="v0.18.0",
        port=8000,
        tls_flags=("--ssl-keyfile", "--ssl-certfile"),  # vLLM #2109
        # Every other switch comes from a field of its configuration, which makes the form `--no-`.
        plain_switches=frozenset(
            {
                "aggregate-engine-logging",
                "data-parallel-multi-port-external-lb",
                "disable-log-requests",  # until v0.10
                "disable-log-stats",
                "grpc",
                "headless",
            }
        ),
    ),
    requirement=Requirement(program="vllm", install="pip install vllm"),
    owned=frozenset(
        {
            *{"host", "port", "model", "served-model-name", "uds", "config", "api-key"},
            *{"nnodes", "node-rank", "master-addr", "master-port", "headless"},
        }
    ),
    loads_code=frozenset(
        {
            "middleware",
            "tool-parser-plugin",
            "reasoning-parser-plugin",
            "worker-cls",
            "worker-extension-cls",
            "logits-processors",
            "trust-remote-code",
        }
    ),
    task_fields=FIELDS,
    rank_flags=rank_flags,
    allow_list=VLLM,
    env={"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"},
    # vllm/v1/metrics/loggers.py and vllm/v1/spec_decode/metrics.py; the older names are of 0.8.
    metrics=MetricNames(
        "vllm",
        {
            "running": ("vllm:num_requests_running",),
            "waiting": ("vllm:num_requests_waiting",),
            "kv_cache_percent": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            "preemptions": ("vllm:num_preemptions_total",),
            "prefix_queried_tokens": (
                *("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries"),
                "vllm:gpu_prefix_cache_queries_total",
            ),
            "prefix_hit_tokens": (
                *("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"),
                "vllm:gpu_prefix_cache_hits_total",
            ),
            "prompt_tokens": ("vllm:prompt_tokens_total",),
            "generation_tokens": ("vllm:generation_tokens_total",),
        },
        drafts="vllm:spec_decode_num_drafts_total",
        accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
        reset_path="/reset_prefix_cache",
    ),
    cache_variables={"VLLM_CACHE_ROOT": "vllm"},  # docs.vllm.ai "torch.compile integration"
    variable_prefixes=("VLLM_",),
    task_variables=("VLLM_*",),
    failures=(
        known_failure(
            FailureKind.ENGINE_MISSING,
            "this version of vLLM cannot read the UUIDs in CUDA_VISIBLE_DEVICES",
            "GPU Steward names the granted GPUs by UUID; take a newer vLLM, or its container "
            "image, which gets its GPUs by device requests and no such variable",
            pattern=r"invalid literal for int\(\) with base 10: '(GPU|MIG)-",
            example="ValueError: invalid literal for int() with base 10: 'GPU-00aa11bb-22cc-33dd'",
            source="vLLM #20939, #41848",
        ),
    ),
    runtime_pattern=re.compile(r"vllm"),
    presets={
        "memory-efficient": {
            "gpu-memory-utilization": [0.7, 0.8],
            "max-num-seqs": [16, 64],
            "kv-cache-dtype": ["auto", "fp8"],
        },
        "high-throughput": {
            "gpu-memory-utilization": [0.9, 0.95],
            "max-num-seqs": [256, 512],
            "max-num-batched-tokens": [8192, 16384],
        },
        "low-latency": {
            "max-num-seqs": [8, 16, 32],
            "max-num-batched-tokens": [2048, 4096],
        },
        "balanced": {
            "gpu-memory-utilization": [0.85, 0.9],
            "max-num-seqs": [64, 128],
            "max-num-batched-tokens": [4096, 8192],
        },
    },
    flag_notes=NOTES,
    find_conflicts=find_conflicts,
    starter=StarterTask(
        model="Qwen/Qwen3-8B",
        parameters="""\
  gpu-memory-utilization: [0.85, 0.92]  # share of the GPU's memory, 0 to 1
  max-num-seqs: [64, 128, 256]          # most sequences decoded together
  # max-num-batched-tokens: [2048, 8192]  # most tokens of one step: more favours throughput
  # tensor-parallel-size: [1, 2]          # GPUs that the model is divided over
""",
    ),
    request_log=VllmLog,
    # vllm/entrypoints: the route is mounted in development mode alone, with others that a task may
    # want kept shut, so that the task decides.
    state_reset=StateReset(path="/reset_prefix_cache", needs_variable="VLLM_SERVER_DEV_MODE"),
)
