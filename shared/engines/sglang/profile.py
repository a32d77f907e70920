"""SGLang: how it is started, what a task may give it, what it reports."""

import re
from typing import Final

from schemas.executor.attempts import FailureKind
from shared.engines.launch import EngineLaunch
from shared.engines.metrics import MetricNames
from shared.engines.profile import EngineProfile, Requirement, StarterTask, StateReset
from shared.engines.ranks import meeting_ranks
from shared.engines.sglang.allow_list import SGLANG
from shared.engines.sglang.combinations import find_conflicts
from shared.engines.sglang.flag_notes import NOTES
from shared.engines.sglang.request_log import SglangLog
from shared.engines.sglang.task_fields import FIELDS
from shared.known_failure import known_failure

# Without the last there is no /metrics.
_PROGRAM: Final = ("python3", "-m", "sglang.launch_server", "--enable-metrics")

PROFILE: Final = EngineProfile(
    name="sglang",
    is_predicted=True,
    title="SGLang",
    launch=EngineLaunch(
        program=_PROGRAM,
        model_flag="--model-path",
        image_program=_PROGRAM,
        repository="lmsysorg/sglang",
        tag="v0.5.19-cu129",
        port=30000,
        tls_flags=("--ssl-keyfile", "--ssl-certfile"),  # SGLang #18973, of 2026
        has_negative_switches=False,
    ),
    requirement=Requirement(module="sglang", install="pip install 'sglang[all]'"),
    owned=frozenset(
        {
            *{"host", "port", "model", "model-path", "served-model-name", "config"},
            *{"api-key", "nnodes", "node-rank", "dist-init-addr", "nccl-init-addr"},
        }
    ),
    loads_code=frozenset({"trust-remote-code", "custom-weight-loader"}),
    task_fields=FIELDS,
    rank_flags=meeting_ranks,
    allow_list=SGLANG,
    env={"DO_NOT_TRACK": "1"},
    # sglang/srt/observability/metrics_collector.py; it counts no look-ups, but every prompt is one.
    metrics=MetricNames(
        "sglang",
        {
            "running": ("sglang:num_running_reqs",),
            "waiting": ("sglang:num_queue_reqs",),
            "kv_cache_percent": ("sglang:token_usage",),
            "preemptions": ("sglang:num_retracted_requests_total", "sglang:num_retracted_reqs"),
            "prefix_queried_tokens": ("sglang:prompt_tokens_total",),
            "prefix_hit_tokens": ("sglang:cached_tokens_total",),
            "prompt_tokens": ("sglang:prompt_tokens_total",),
            "generation_tokens": ("sglang:generation_tokens_total",),
            "accept_length": ("sglang:spec_accept_length",),
        },
        reset_path="/flush_cache",
    ),
    # docs.sglang.io "Environment Variables" and sglang/srt/environ.py
    cache_variables={"SGLANG_DG_CACHE_DIR": "deep_gemm"},
    variable_prefixes=("SGLANG_", "SGL_"),
    task_variables=("SGLANG_*", "SGL_*"),
    failures=(
        known_failure(
            FailureKind.ENGINE_EXITED,
            "the engine's requests to itself went through a proxy",
            "except loopback from it: NO_PROXY=localhost,127.0.0.1,::1 in the agent's environment",
            pattern=r"warmup error:|AssertionError: res=<Response \[50[234]\]>",
            example="AssertionError: res=<Response [502]>, res.text=''",
            source="SGLang #7341, #9814",
        ),
    ),
    runtime_pattern=re.compile(r"sglang"),
    presets={
        "memory-efficient": {
            "mem-fraction-static": [0.7, 0.8],
            "max-running-requests": [16, 64],
            "chunked-prefill-size": [2048],
        },
        "high-throughput": {
            "mem-fraction-static": [0.85, 0.9],
            "max-running-requests": [256, 512],
            "chunked-prefill-size": [8192, 16384],
            "schedule-policy": ["lpm", "fcfs"],
        },
        "low-latency": {
            "max-running-requests": [8, 16, 32],
            "chunked-prefill-size": [2048, 4096],
        },
        "balanced": {
            "mem-fraction-static": [0.8, 0.85],
            "max-running-requests": [64, 128],
            "chunked-prefill-size": [4096, 8192],
        },
    },
    flag_notes=NOTES,
    find_conflicts=find_conflicts,
    starter=StarterTask(
        model="Qwen/Qwen3-8B",
        parameters="""\
  mem-fraction-static: [0.8, 0.88]      # share of the GPU's memory for weights and cache, 0 to 1
  max-running-requests: [64, 128, 256]  # most requests decoded together
  # chunked-prefill-size: [2048, 8192]    # most prompt tokens of one step
  # tp-size: [1, 2]                       # GPUs that the model is divided over
""",
    ),
    backend="sglang",
    request_log=SglangLog,
    state_reset=StateReset(path="/flush_cache"),
)
