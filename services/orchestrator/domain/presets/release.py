"""Presets of parameters that come with this release: where to begin, by engine and by aim."""

from typing import Any, Final

import msgspec

from schemas.orchestrator.presets import Preset, PresetView

_AIMS: Final = {
    "memory-efficient": "Memory Efficient: few sequences and a small part of the memory",
    "high-throughput": "High Throughput: many sequences and tokens at once",
    "low-latency": "Low Latency: few sequences at once, each prompt in few steps",
    "balanced": "Balanced: between the two",
}
_PARAMETERS: Final[dict[str, dict[str, dict[str, list[Any]]]]] = {
    "vllm": {
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
    "sglang": {
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
    "llamacpp": {
        "memory-efficient": {"parallel": [1, 2], "batch-size": [256], "ubatch-size": [128]},
        "high-throughput": {"parallel": [8, 16], "batch-size": [2048], "ubatch-size": [512]},
        "low-latency": {"parallel": [1, 2], "batch-size": [512, 2048]},
        "balanced": {"parallel": [4], "batch-size": [512, 1024]},
    },
}
RELEASE_PRESETS: Final = {
    f"{aim}-{engine}": PresetView(
        namespace=None,
        name=f"{aim}-{engine}",
        description=_AIMS[aim],
        engine=engine,
        parameters=msgspec.convert({"name": aim, "parameters": parameters}, Preset).parameters,
    )
    for engine, by_aim in _PARAMETERS.items()
    for aim, parameters in by_aim.items()
}
