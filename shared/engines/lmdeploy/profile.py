"""LMDeploy: how it is started, what a task may give it, what it reports.

Written from its source of v0.16.0; not yet run by us on a GPU.
"""

import re
from typing import Final

from schemas.executor.engine_rules import TaskField
from shared.engines.launch import EngineLaunch
from shared.engines.lmdeploy.allow_list import LMDEPLOY
from shared.engines.lmdeploy.flag_notes import NOTES
from shared.engines.metrics import MetricNames
from shared.engines.profile import EngineProfile, Requirement, StarterTask
from shared.engines.task_fields import as_flags, by_value, without_flag

_PROGRAM: Final = ("lmdeploy", "serve", "api_server")

PROFILE: Final = EngineProfile(
    name="lmdeploy",
    title="LMDeploy",
    launch=EngineLaunch(
        program=_PROGRAM,
        model_flag=None,
        name_flag="--model-name",
        host_flag="--server-name",
        port_flag="--server-port",
        entrypoint=_PROGRAM,
        repository="openmmlab/lmdeploy",
        tag="v0.16.0",
        port=23333,
        has_negative_switches=False,
    ),
    requirement=Requirement(program="lmdeploy", install="pip install lmdeploy"),
    owned=frozenset(
        {
            *{"server-name", "server-port", "model-name", "model-path", "api-keys", "ssl"},
            *{"proxy-url", "dist-init-addr", "nnodes", "node-rank", "dp-rank", "role"},
        }
    ),
    loads_code=frozenset({"trust-remote-code"}),
    task_fields={
        **as_flags(tp="tp", dp="dp", ep="ep"),
        "gemm_dtype": TaskField(
            values={"fp8": {"model-format": "fp8"}, **by_value("dtype", "float16", "bfloat16")}
        ),
        "kvcache_dtype": TaskField(
            values={
                "int8": {"quant-policy": "8"},
                "int4": {"quant-policy": "4"},
                **without_flag("bfloat16", "fp16"),
            },
            note="LMDeploy's KV cache is of the model's type, int8 or int4",
        ),
    },
    allow_list=LMDEPLOY,
    # lmdeploy/metrics/loggers.py; every prompt is looked up in the prefix cache.
    metrics=MetricNames(
        "lmdeploy",
        {
            "running": ("lmdeploy:num_requests_running",),
            "waiting": ("lmdeploy:num_requests_waiting",),
            "kv_cache_percent": ("lmdeploy:gpu_cache_usage_perc",),
            "prefix_queried_tokens": ("lmdeploy:prompt_tokens_total",),
            "prefix_hit_tokens": ("lmdeploy:cached_tokens_total",),
            "prompt_tokens": ("lmdeploy:prompt_tokens_total",),
            "generation_tokens": ("lmdeploy:generation_tokens_total",),
        },
        drafts="lmdeploy:spec_decode_num_drafts_total",
        accepted_tokens="lmdeploy:spec_decode_num_accepted_tokens_total",
    ),
    variable_prefixes=("LMDEPLOY_", "TM_"),
    runtime_pattern=re.compile(r"lmdeploy"),
    presets={
        "memory-efficient": {"cache-max-entry-count": [0.5, 0.6], "max-batch-size": [16, 64]},
        "high-throughput": {
            "cache-max-entry-count": [0.8, 0.9],
            "max-batch-size": [128, 256],
            "max-prefill-token-num": [8192, 16384],
        },
        "low-latency": {"max-batch-size": [8, 16, 32], "max-prefill-token-num": [2048, 4096]},
        "balanced": {"cache-max-entry-count": [0.7, 0.8], "max-batch-size": [64, 128]},
    },
    flag_notes=NOTES,
    starter=StarterTask(
        model="Qwen/Qwen3-8B",
        parameters="""\
  cache-max-entry-count: [0.7, 0.85]  # share of the free GPU memory for the KV cache, 0 to 1
  max-batch-size: [64, 128, 256]      # most requests decoded together
  # max-prefill-token-num: [4096, 8192]  # most prompt tokens of one step
  # tp: [1, 2]                           # GPUs that the model is divided over
""",
    ),
)
