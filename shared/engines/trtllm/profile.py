"""TensorRT-LLM: how it is started, what a task may give it, what it reports.

Written from its source; not yet run by us on a GPU.
"""

import re
from typing import Final

from schemas.executor.attempts import FailureKind
from schemas.executor.engine_rules import TaskField
from shared.engines.launch import EngineLaunch
from shared.engines.metrics import MetricNames
from shared.engines.profile import EngineProfile, Requirement, StarterTask
from shared.engines.task_fields import as_flags, without_flag
from shared.engines.trtllm.allow_list import TRTLLM
from shared.engines.trtllm.combinations import find_conflicts
from shared.engines.trtllm.flag_notes import NOTES
from shared.engines.trtllm.launcher import PROGRAM
from shared.known_failure import known_failure

PROFILE: Final = EngineProfile(
    name="trtllm",
    is_predicted=True,
    title="TensorRT-LLM",
    launch=EngineLaunch(
        program=PROGRAM,
        model_flag=None,
        # It answers to any name.
        name_flag=None,
        entrypoint=PROGRAM,
        repository="nvcr.io/nvidia/tensorrt-llm/release",
        tag="1.2.0",
        port=8000,
        has_negative_switches=False,
        has_underscores=True,
    ),
    requirement=Requirement(program="trtllm-serve", install="pip install tensorrt-llm"),
    owned=frozenset(
        {
            *{"host", "port", "model", "served-model-name", "gpus-per-node", "server-role"},
            *{"config", "extra-llm-api-options", "metadata-server-config-file"},
            *{"disagg-cluster-uri", "grpc"},
        }
    ),
    loads_code=frozenset({"trust-remote-code", "custom-module-dirs", "custom-tokenizer"}),
    task_fields={
        **as_flags(
            tp="tp-size", pp="pp-size", cp="cp-size", moe_ep="ep-size", moe_cluster="cluster-size"
        ),
        "gemm_dtype": TaskField(
            values=without_flag("float16", "bfloat16", "fp8"),
            note="the checkpoint decides its precision",
        ),
        "kvcache_dtype": TaskField(
            values={
                "fp8": {"kv-cache-config": {"dtype": "fp8"}},
                "fp8_e4m3": {"kv-cache-config": {"dtype": "fp8"}},
                **without_flag("fp16", "bfloat16"),
            },
            note="the KV cache is of the model's type, or fp8",
        ),
    },
    allow_list=TRTLLM,
    env={"DO_NOT_TRACK": "1", "TRTLLM_NO_USAGE_STATS": "1"},
    # tensorrt_llm/metrics/collector.py; its /metrics is JSON of single steps.
    metrics=MetricNames(
        "trtllm",
        {
            "running": ("trtllm_num_requests_running",),
            "waiting": ("trtllm_num_requests_waiting",),
            "kv_cache_percent": ("trtllm_kv_cache_utilization",),
            "prefix_queried_tokens": ("trtllm_prompt_tokens_total",),
            "prefix_hit_tokens": (
                "trtllm_prompt_cached_tokens_total",
                "trtllm_prompt_cache_hit_tokens_total",
            ),
            "prompt_tokens": ("trtllm_prompt_tokens_total",),
            "generation_tokens": ("trtllm_generation_tokens_total",),
            "accept_length": ("trtllm_spec_decode_acceptance_length",),
        },
        path="/prometheus/metrics",
    ),
    variable_prefixes=("TRTLLM_", "TLLM_"),
    task_variables=("TRTLLM_*", "TLLM_*"),
    failures=(
        known_failure(
            FailureKind.BAD_PARAMETER,
            "this version of trtllm-serve does not have the flag",
            "take an image whose version has it, or leave the flag out",
            pattern=r"^Error: No such option: (--\w+)",
            example="Error: No such option: --kv_cache_dtype",
            source="click's UsageError; TensorRT-LLM spells its options with underscores",
        ),
        known_failure(
            FailureKind.BAD_PARAMETER,
            "this version of TensorRT-LLM does not know a field of the configuration",
            "take an image whose version has it, or leave the field out of the object",
            pattern=r"validation errors? for \w*LlmArgs\b",
            example="pydantic_core.ValidationError: 1 validation error for TorchLlmArgs",
            source="TensorRT-LLM tensorrt_llm/llmapi/llm_args.py, StrictBaseModel",
        ),
    ),
    runtime_pattern=re.compile(r"trt-?llm|tensorrt-?llm"),
    presets={
        "memory-efficient": {
            "free-gpu-memory-fraction": [0.6, 0.75],
            "max-batch-size": [16, 64],
        },
        "high-throughput": {
            "free-gpu-memory-fraction": [0.9, 0.95],
            "max-batch-size": [256, 512],
            "max-num-tokens": [8192, 16384],
        },
        "low-latency": {"max-batch-size": [8, 16, 32], "max-num-tokens": [2048, 4096]},
        "balanced": {
            "free-gpu-memory-fraction": [0.85, 0.9],
            "max-batch-size": [64, 128],
            "max-num-tokens": [4096, 8192],
        },
    },
    flag_notes=NOTES,
    find_conflicts=find_conflicts,
    starter=StarterTask(
        model="Qwen/Qwen3-8B",
        parameters="""\
  free-gpu-memory-fraction: [0.85, 0.92]  # of the memory beside the weights, for the KV cache
  max-batch-size: [64, 128, 256]          # most requests of one step
  # max-num-tokens: [4096, 8192]            # most tokens of one step
  # tp-size: [1, 2]                         # GPUs that the model is divided over
""",
    ),
)
