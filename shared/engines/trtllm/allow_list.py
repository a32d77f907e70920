"""TensorRT-LLM: `trtllm-serve` of 1.2, read from its tensorrt_llm/commands/serve.py, and the blocks
of its configuration from tensorrt_llm/llmapi/llm_args.py.
"""

from collections.abc import Mapping
from typing import Final

from schemas.executor.engine_rules import ParameterKind
from shared.engines.allow_list import SHARE, AllowList, Form, Text, one_of, with_form

_KV_CACHE: Final[Mapping[str, Form]] = dict(
    (
        *with_form(
            ParameterKind.SWITCH,
            "copy_on_partial_reuse enable_block_reuse enable_partial_reuse onboard_blocks",
        ),
        *with_form(
            ParameterKind.INTEGER,
            """
            host_cache_size max_gpu_total_bytes max_tokens secondary_offload_min_priority
            sink_token_length tokens_per_block
            """,
        ),
        ("free_gpu_memory_fraction", SHARE),
        *with_form(Text.PLAIN, "dtype mamba_ssm_cache_dtype max_attention_window"),
    )
)
# None of these takes its drafter from a module; `User_Provided` would.
_SPECULATIVE: Final[Mapping[str, Form]] = dict(
    (
        (
            "decoding_type",
            one_of("AUTO DraftTarget Draft_Target Eagle Eagle3 Lookahead MTP Medusa NGram"),
        ),
        *with_form(Text.HUB_ID, "speculative_model speculative_model_dir"),
        *with_form(
            ParameterKind.INTEGER,
            """
            dynamic_tree_max_topK max_concurrency max_draft_len max_matching_ngram_size
            max_ngram_size max_verification_set_size max_window_size num_eagle_layers
            num_medusa_heads num_nextn_predict_layers
            """,
        ),
        *with_form(
            ParameterKind.SWITCH,
            """
            eagle3_one_model is_keep_all is_public_pool is_use_oldest use_dynamic_tree
            use_relaxed_acceptance_for_thinking
            """,
        ),
        *with_form(ParameterKind.NUMBER, "posterior_threshold relaxed_delta relaxed_topk"),
    )
)
# Not `lora_dir`, which opens paths.
_LORA: Final[Mapping[str, Form]] = dict(
    with_form(ParameterKind.INTEGER, "max_cpu_loras max_lora_rank max_loras")
)
_CUDA_GRAPH: Final[Mapping[str, Form]] = dict(
    (
        *with_form(Text.PLAIN, "batch_sizes"),
        *with_form(ParameterKind.INTEGER, "max_batch_size"),
        *with_form(ParameterKind.SWITCH, "enable_padding"),
    )
)
_SCHEDULER: Final[Mapping[str, Form]] = {
    "capacity_scheduler_policy": one_of("GUARANTEED_NO_EVICT MAX_UTILIZATION STATIC_BATCH"),
    "context_chunking_policy": one_of("EQUAL_PROGRESS FIRST_COME_FIRST_SERVED"),
}
_MOE: Final[Mapping[str, Form]] = {
    "backend": one_of("AUTO CUTEDSL CUTLASS DEEPGEMM TRITON TRTLLM VANILLA WIDEEP"),
    "max_num_tokens": ParameterKind.INTEGER,
    "use_low_precision_moe_combine": ParameterKind.SWITCH,
}

TRTLLM: Final = AllowList(
    engine="trtllm",
    version="1.2",
    forms=dict(
        (
            *with_form(
                ParameterKind.INTEGER,
                """
                cluster-size context-parallel-size cp-size ep-size max-batch-size max-beam-width
                max-num-tokens max-seq-len moe-cluster-parallel-size moe-expert-parallel-size
                num-postprocess-workers pipeline-parallel-size pp-size tensor-parallel-size tp-size
                """,
            ),
            *with_form(
                ParameterKind.SWITCH,
                "enable-chunked-prefill fail-fast-on-attention-window-too-large",
            ),
            *with_form(SHARE, "free-gpu-memory-fraction kv-cache-free-gpu-memory-fraction"),
            ("backend", one_of("pytorch tensorrt _autodeploy")),
            ("log-level", one_of("internal_error error warning info verbose debug trace")),
            *with_form(Text.PLAIN, "reasoning-parser revision tool-parser"),
            ("cuda-graph-config", _CUDA_GRAPH),
            ("kv-cache-config", _KV_CACHE),
            ("lora-config", _LORA),
            ("moe-config", _MOE),
            ("scheduler-config", _SCHEDULER),
            ("speculative-config", _SPECULATIVE),
        )
    ),
)
