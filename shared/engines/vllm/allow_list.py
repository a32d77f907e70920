"""vLLM: https://docs.vllm.ai/en/v0.18.0/cli/serve/, and the engine arguments of 0.8.5."""

from collections.abc import Mapping
from typing import Final

from schemas.executor.engine_rules import ParameterKind
from shared.engines.allow_list import SHARE, AllowList, Form, Text, one_of, with_form

_ROPE: Final[Mapping[str, Form]] = dict(
    (
        *with_form(
            ParameterKind.NUMBER,
            """
            attention_factor beta_fast beta_slow factor high_freq_factor low_freq_factor mscale
            mscale_all_dim original_max_position_embeddings rope_theta
            """,
        ),
        *with_form(Text.PLAIN, "rope_type type"),
    )
)
# Of a model's config.json: numbers alone, never `auto_map` or `architectures`.
HF_OVERRIDES: Final[Mapping[str, Form]] = dict(
    (
        *with_form(
            ParameterKind.INTEGER,
            """
            max_position_embeddings max_window_layers num_experts_per_tok num_hidden_layers
            sliding_window
            """,
        ),
        ("rope_theta", ParameterKind.NUMBER),
        ("rope_parameters", _ROPE),
        ("rope_scaling", _ROPE),
    )
)
SAMPLING: Final[Mapping[str, Form]] = dict(
    with_form(
        ParameterKind.NUMBER,
        """
        frequency_penalty max_new_tokens max_tokens min_p presence_penalty repetition_penalty
        temperature top_k top_p
        """,
    )
)
LOADER: Final[Mapping[str, Form]] = {
    "enable_multithread_load": ParameterKind.SWITCH,
    "num_threads": ParameterKind.INTEGER,
}
_TEMPLATE: Final[Mapping[str, Form]] = {
    "enable_thinking": ParameterKind.SWITCH,
    "thinking": ParameterKind.SWITCH,
    "reasoning_effort": Text.PLAIN,
}
_SPECULATIVE: Final[Mapping[str, Form]] = dict(
    (
        # Of these none takes its drafter from a module.
        (
            "method",
            one_of(
                """
                ngram ngram_gpu suffix medusa mlp_speculator draft_model eagle
                eagle3 mtp deepseek_mtp mimo_mtp glm4_moe_mtp glm4_moe_lite_mtp
                glm_ocr_mtp ernie_mtp nemotron_h_mtp exaone_moe_mtp qwen3_next_mtp
                qwen3_5_mtp longcat_flash_mtp pangu_ultra_moe_mtp step3p5_mtp
                """
            ),
        ),
        ("model", Text.HUB_ID),
        *with_form(
            ParameterKind.INTEGER,
            """
            disable_by_batch_size draft_tensor_parallel_size max_model_len num_speculative_tokens
            prompt_lookup_max prompt_lookup_min suffix_decoding_max_cached_requests
            suffix_decoding_max_tree_depth
            """,
        ),
        *with_form(
            ParameterKind.NUMBER, "suffix_decoding_max_spec_factor suffix_decoding_min_token_prob"
        ),
        *with_form(
            ParameterKind.SWITCH,
            """
            disable_padded_drafter_batch enforce_eager parallel_drafting
            use_local_argmax_reduction
            """,
        ),
        *with_form(Text.PLAIN, "quantization rejection_sample_method revision"),
    )
)
_PASSES: Final[Mapping[str, Form]] = dict(
    (
        *with_form(
            ParameterKind.SWITCH,
            """
            eliminate_noops enable_qk_norm_rope_fusion enable_sp fuse_act_padding fuse_act_quant
            fuse_allreduce_rms fuse_attn_quant fuse_gemm_comms fuse_norm_quant fuse_rope_kvcache
            """,
        ),
        *with_form(
            ParameterKind.NUMBER,
            "fi_allreduce_fusion_max_size_mb rope_kvcache_fusion_max_token_num sp_min_token_num",
        ),
    )
)
# Not `backend` at will, `inductor_passes` and `inductor_compile_config`, which name code.
_COMPILATION: Final[Mapping[str, Form]] = dict(
    (
        ("backend", ("eager", "inductor", "")),
        ("pass_config", _PASSES),
        *with_form(
            ParameterKind.INTEGER, "cudagraph_num_of_warmups level max_cudagraph_capture_size"
        ),
        *with_form(
            ParameterKind.SWITCH,
            """
            compile_mm_encoder cudagraph_copy_inputs cudagraph_specialize_lora
            fast_moe_cold_start full_cuda_graph use_cudagraph use_inductor
            use_inductor_graph_partition
            """,
        ),
        *with_form(
            Text.PLAIN,
            """
            compile_ranges_endpoints compile_sizes cudagraph_capture_sizes cudagraph_mode
            custom_ops mode
            """,
        ),
    )
)

VLLM: Final = AllowList(
    engine="vllm",
    version="0.18.0",
    forms=dict(
        (
            *with_form(
                ParameterKind.INTEGER,
                """
                block-size cp-kv-cache-interleave-size data-parallel-size
                dbo-decode-token-threshold dbo-prefill-token-threshold
                dcp-kv-cache-interleave-size decode-context-parallel-size
                distributed-timeout-seconds long-prefill-token-threshold mamba-block-size
                max-cpu-loras max-cudagraph-capture-size max-log-len max-logprobs
                max-long-partial-prefills max-loras max-num-partial-prefills max-num-seqs
                max-parallel-loading-workers max-seq-len-to-capture
                mm-shm-cache-max-object-size-mb num-gpu-blocks-override
                num-lookahead-slots num-scheduler-steps offload-group-size
                offload-num-in-group offload-prefetch-step pipeline-parallel-size
                prefill-context-parallel-size seed shutdown-timeout stream-interval
                tensor-parallel-size ubatch-size
                """,
            ),
            *with_form(SHARE, "gpu-memory-utilization"),
            *with_form(
                ParameterKind.NUMBER,
                """
                cpu-offload-gb kv-cache-metrics-sample
                kv-offloading-size mm-processor-cache-gb rope-theta scheduler-delay-factor
                swap-space video-pruning-rate
                """,
            ),
            *with_form(
                ParameterKind.SWITCH,
                """
                aggregate-engine-logging allow-deprecated-quantization async-scheduling
                calculate-kv-scales cudagraph-metrics disable-async-output-proc
                disable-cascade-attn disable-chunked-mm-input disable-custom-all-reduce
                disable-fastapi-docs disable-frontend-multiprocessing
                disable-hybrid-kv-cache-manager disable-log-requests disable-log-stats
                disable-mm-preprocessor-cache disable-nccl-for-dp-synchronization
                disable-sliding-window disable-uvicorn-access-log enable-auto-tool-choice
                enable-chunked-prefill enable-dbo enable-ep-weight-filter enable-eplb
                enable-expert-parallel enable-flashinfer-autotune
                enable-force-include-usage enable-layerwise-nvtx-tracing enable-log-deltas
                enable-log-outputs enable-log-requests enable-logging-iteration-details
                enable-lora enable-mfu-metrics enable-multimodal-encoder-data-parallel
                enable-prefix-caching enable-prompt-tokens-details enable-reasoning
                enable-request-id-headers enable-return-routed-experts
                enable-server-load-tracking enable-tower-connector-lora enforce-eager
                exclude-tools-when-tool-choice-none fully-sharded-loras
                interleave-mm-strings kv-cache-metrics kv-sharing-fast-prefill
                language-model-only log-error-stack mm-encoder-only
                multi-step-stream-outputs return-tokens-as-token-ids skip-mm-profiling
                skip-tokenizer-init specialize-active-lora use-tqdm-on-load
                use-v2-block-manager
                """,
            ),
            *with_form(
                Text.PLAIN,
                """
                all2all-backend api-server-count attention-backend
                chat-template-content-format convert cuda-graph-sizes
                cudagraph-capture-sizes dcp-comm-backend dtype expert-placement-strategy
                gdn-prefill-backend guided-decoding-backend kv-cache-dtype
                kv-cache-memory-bytes logprobs-mode lora-dtype mamba-cache-dtype
                mamba-cache-mode mamba-ssm-cache-dtype max-lora-rank max-model-len
                max-num-batched-tokens mm-encoder-attn-backend mm-encoder-tp-mode
                mm-processor-cache-type moe-backend offload-backend optimization-level
                override-attention-dtype performance-mode preemption-mode
                prefix-caching-hash-algo quantization reasoning-parser revision runner
                safetensors-load-strategy scheduling-policy task tokenizer-revision
                tool-call-parser uvicorn-log-level
                """,
            ),
            ("lora-modules", Text.ADAPTERS),
            ("config-format", ("auto", "hf", "mistral")),
            # Any other text is the path of a class, and `ray` joins a cluster.
            ("distributed-executor-backend", ("mp", "uni")),
            ("generation-config", ("auto", "vllm")),
            ("kv-offloading-backend", ("native",)),
            # The others read from addresses, or unpickle.
            (
                "load-format",
                (
                    "auto",
                    "bitsandbytes",
                    "dummy",
                    "fastsafetensors",
                    "gguf",
                    "mistral",
                    "safetensors",
                ),
            ),
            ("model-impl", ("auto", "vllm", "transformers")),
            ("tokenizer", Text.HUB_ID),
            ("tokenizer-mode", ("auto", "hf", "mistral", "slow")),
            (
                "attention-config",
                dict(
                    (
                        ("backend", Text.PLAIN),
                        *with_form(
                            ParameterKind.INTEGER,
                            "flash_attn_max_num_splits_for_cuda_graph flash_attn_version",
                        ),
                        *with_form(
                            ParameterKind.SWITCH,
                            """
                            disable_flashinfer_prefill disable_flashinfer_q_quantization
                            use_cudnn_prefill use_prefill_decode_attention
                            use_prefill_query_quantization use_trtllm_attention
                            use_trtllm_ragged_deepseek_prefill
                            """,
                        ),
                    )
                ),
            ),
            ("compilation-config", _COMPILATION),
            ("default-chat-template-kwargs", _TEMPLATE),
            (
                "eplb-config",
                dict(
                    (
                        *with_form(
                            ParameterKind.INTEGER,
                            """
                            log_balancedness_interval num_redundant_experts step_interval
                            window_size
                            """,
                        ),
                        *with_form(ParameterKind.SWITCH, "log_balancedness use_async"),
                        ("policy", Text.PLAIN),
                    )
                ),
            ),
            ("hf-overrides", HF_OVERRIDES),
            (
                "kernel-config",
                {"enable_flashinfer_autotune": ParameterKind.SWITCH, "moe_backend": Text.PLAIN},
            ),
            ("limit-mm-per-prompt", dict(with_form(ParameterKind.INTEGER, "audio image video"))),
            ("model-loader-extra-config", LOADER),
            ("override-generation-config", SAMPLING),
            (
                "pooler-config",
                dict(
                    (
                        *with_form(ParameterKind.INTEGER, "dimensions max_embed_len"),
                        *with_form(
                            ParameterKind.SWITCH, "enable_chunked_processing use_activation"
                        ),
                        *with_form(Text.PLAIN, "pooling_type seq_pooling_type tok_pooling_type"),
                    )
                ),
            ),
            ("rope-scaling", _ROPE),
            ("speculative-config", _SPECULATIVE),
            (
                "structured-outputs-config",
                dict(
                    (
                        *with_form(
                            ParameterKind.SWITCH,
                            """
                            disable_additional_properties disable_any_whitespace
                            disable_fallback enable_in_reasoning
                            """,
                        ),
                        *with_form(Text.PLAIN, "backend reasoning_parser"),
                    )
                ),
            ),
        )
    ),
)
