"""SGLang: https://docs.sglang.io/docs/advanced_features/server_arguments, and `--help` of
`sglang.launch_server` of 0.5.19, 0.5.2 and 0.4.8.
"""

from typing import Final

from schemas.executor.engine_rules import ParameterKind
from shared.engines.allow_list import SHARE, AllowList, Text, one_of, with_form
from shared.engines.vllm.allow_list import HF_OVERRIDES, LOADER, SAMPLING

# The others read from addresses, write beside the model, or unpickle.
_FORMATS: Final = one_of("auto bitsandbytes dummy fastsafetensors gguf layered mistral safetensors")

SGLANG: Final = AllowList(
    engine="sglang",
    version="0.5.19",
    forms=dict(
        (
            *with_form(
                ParameterKind.INTEGER,
                """
                attention-context-parallel-size attn-cp-size c128-page-size
                chunked-prefill-size cpu-offload-gb cuda-graph-max-bs
                cuda-graph-max-bs-decode cuda-graph-max-bs-prefill data-parallel-size
                dcp-size decode-context-parallel-size decode-log-interval
                default-priority-value detokenizer-worker-num dist-timeout dp-size
                dwdp-size dynamic-batch-tokenizer-batch-size ep ep-num-redundant-experts
                ep-size eplb-rebalance-layers-per-chunk eplb-rebalance-num-iterations
                expert-distribution-recorder-buffer-size expert-parallel-size hicache-size
                linear-replayssm-cache-len load-snapshot-publish-interval
                log-requests-level mamba-cache-philox-rounds mamba-max-states-per-path
                mamba-track-interval max-loaded-loras max-lora-chunk-size max-lora-rank
                max-loras-per-batch max-mamba-cache-size max-micro-batch-size
                max-queued-requests max-running-requests min-free-slots-delay
                mm-io-worker-num mm-preprocess-cache-size-mb mm-processor-worker-num
                moe-data-parallel-size moe-dense-tp-size moe-dp-size
                num-continuous-decode-steps num-reserved-decode-tokens offload-group-size
                offload-num-in-group offload-prefetch-step optimistic-prefill-attempts
                page-size piecewise-cuda-graph-max-tokens pipeline-parallel-size
                pp-async-batch-depth pp-max-micro-batch-size pp-size
                prefill-decode-interval prefill-delayer-max-delay-passes
                prefill-max-requests priority-scheduling-preemption-threshold random-seed
                scheduler-recv-interval speculative-dflash-block-size
                speculative-dflash-draft-window-size speculative-draft-window-size
                speculative-dspark-block-size speculative-eagle-topk
                speculative-ngram-capacity speculative-ngram-max-bfs-breadth
                speculative-ngram-max-trie-depth speculative-ngram-min-bfs-breadth
                speculative-num-draft-tokens speculative-num-steps stream-interval
                tensor-parallel-size tokenizer-worker-num torch-compile-max-bs tp-size
                triton-attention-num-kv-splits triton-attention-split-tile-size
                weight-loader-prefetch-num-threads
                """,
            ),
            # The autotuner's files have the short form, which SGLang's own parser takes.
            *with_form(SHARE, "mem-frac mem-fraction-static"),
            *with_form(
                ParameterKind.NUMBER,
                """
                dynamic-batch-tokenizer-batch-timeout
                eplb-min-rebalancing-utilization-threshold gc-warning-threshold-secs
                hicache-ratio lora-drain-wait-threshold mamba-full-memory-ratio
                prefill-delayer-max-delay-ms
                prefill-delayer-queue-min-ratio prefill-delayer-token-usage-low-watermark
                schedule-conservativeness soft-watchdog-timeout
                speculative-accept-threshold-acc speculative-accept-threshold-single
                swa-full-tokens-ratio tbo-token-distribution-threshold watchdog-timeout
                """,
            ),
            *with_form(
                ParameterKind.SWITCH,
                """
                allow-auto-truncate collect-tokens-histogram
                constrained-json-disable-any-whitespace dcp-replicate-q-proj
                debug-cuda-graph disable-attn-tp-gather disable-chunked-prefix-cache
                disable-cuda-graph disable-cuda-graph-padding disable-custom-all-reduce
                disable-decode-cuda-graph disable-fast-image-processor
                disable-flashinfer-autotune disable-flashinfer-cutlass-moe-fp4-allgather
                disable-hybrid-swa-memory disable-outlines-disk-cache
                disable-overlap-cg-plan disable-overlap-schedule
                disable-piecewise-cuda-graph disable-prefill-cuda-graph
                disable-priority-preemption disable-radix-cache
                disable-shared-experts-fusion disable-tokenizer-batch-decode
                enable-aiter-allreduce-fusion enable-attn-tp-input-scattered
                enable-breakable-cuda-graph enable-broadcast-mm-inputs-process
                enable-cache-report enable-cp-decode-attn-tp enable-cudagraph-gc
                enable-deepep-moe enable-deepseek-v4-fp4-indexer enable-dense-mlp-attn-tp
                enable-deterministic-inference enable-dp-attention
                enable-dp-attention-local-control-broadcast enable-dp-lm-head
                enable-dsa-cache-layer-split enable-dsa-prefill-context-parallel
                enable-dynamic-batch-tokenizer enable-dynamic-chunking enable-ep-moe
                enable-eplb enable-expert-distribution-metrics
                enable-flashinfer-allreduce-fusion enable-flashinfer-cutlass-moe
                enable-flashinfer-moe enable-flashinfer-mxfp4-moe
                enable-flashinfer-trtllm-moe enable-fp32-lm-head
                enable-fused-moe-sum-all-reduce enable-fused-qk-norm-rope
                enable-gdn-replayssm-spec enable-hierarchical-cache enable-hisparse
                enable-layernorm-sp enable-layerwise-nvtx-marker enable-lean-attention
                enable-linear-replayssm enable-linear-replayssm-spec
                enable-lora-overlap-loading enable-mamba-cache-stochastic-rounding
                enable-memory-saver enable-metrics enable-metrics-for-all-schedulers
                enable-mfu-metrics enable-mixed-chunk enable-mscclpp
                enable-multi-layer-eagle enable-multimodal enable-nan-detection
                enable-nccl-nvls enable-nsa-prefill-context-parallel enable-p2p-check
                enable-page-major-kv-layout enable-precise-embedding-interpolation
                enable-prefill-context-parallel enable-prefill-cp enable-prefill-delayer
                enable-prefix-mm-cache enable-priority-scheduling
                enable-profile-cuda-graph enable-quant-communications
                enable-request-time-stats-logging enable-return-hidden-states
                enable-return-indexer-topk enable-return-routed-experts
                enable-scattered-sconv enable-shared-experts-attn-tp
                enable-single-batch-overlap enable-strict-thinking enable-symm-mem
                enable-tf32-matmul enable-tokenizer-batch-encode enable-torch-compile
                enable-torch-compile-debug-mode enable-torch-symm-mem
                enable-tp-lm-head-all-to-all enable-triton-kernel-moe
                enable-two-batch-overlap enable-unified-memory enable-w4a4-mxfp4-megamoe
                enable-waterfill enforce-disable-flashinfer-allreduce-fusion
                enforce-piecewise-cuda-graph enforce-shared-experts-fusion
                experts-shared-outer-loras flashinfer-mla-disable-ragged
                incremental-streaming-output is-embedding keep-mm-feature-on-device
                log-requests lora-strict-loading lora-use-virtual-experts
                mm-enable-dp-encoder pre-warm-nccl prefill-only-disable-kv-cache
                prefill-round-robin-balance schedule-low-priority-values-first
                show-time-cost skip-tokenizer-init sleep-on-idle speculative-adaptive
                speculative-dspark-align-verify-tokens-to-graph-tier
                speculative-skip-dp-mlp-sync speculative-use-rejection-sampling
                stream-output stream-response-default-include-usage strip-thinking-cache
                triton-attention-reduce-in-fp32 weight-loader-disable-mmap
                weight-loader-drop-cache-after-load weight-loader-prefetch-checkpoints
                """,
            ),
            *with_form(
                Text.PLAIN,
                """
                attention-backend bf16-gemm-backend bucket-e2e-request-latency
                bucket-inter-token-latency bucket-time-to-first-token context-length
                cp-strategy cuda-graph-backend-decode cuda-graph-backend-prefill
                cuda-graph-bs cuda-graph-bs-decode cuda-graph-bs-prefill
                cuda-graph-tc-compiler dcp-comm-backend decode-attention-backend
                deepep-dispatcher-output-dtype deepep-mode deepep-v2-mode
                dsa-decode-backend dsa-paged-mqa-logits-backend dsa-prefill-backend
                dsa-prefill-cp-mode dsa-topk-backend dsv4-prefill-backend dtype
                ep-dispatch-algorithm eplb-algorithm expert-balancedness-report-mode
                expert-distribution-recorder-mode flashinfer-allreduce-fusion-backend
                flashinfer-autotune-skip-ops flashinfer-mxfp4-moe-precision
                fp4-gemm-backend fp8-gemm-backend fuseep-mode generation-tokens-buckets
                grammar-backend hicache-host-memory-mode hicache-io-backend
                hicache-mem-layout hicache-write-policy hybrid-kvcache-ratio
                image-processor-backend kv-cache-dtype linear-attn-backend
                linear-attn-decode-backend linear-attn-prefill-backend
                linear-attn-verify-backend load-balance-method log-level log-level-http
                log-requests-format lora-backend lora-eviction-policy mamba-backend
                mamba-radix-cache-strategy mamba-scheduler-strategy mamba-ssm-dtype
                max-prefill-tokens max-total-tokens mm-attention-backend moe-a2a-backend
                moe-runner-backend nsa-decode-backend nsa-prefill-backend
                nsa-prefill-cp-mode numa-node offload-mode piecewise-cuda-graph-compiler
                piecewise-cuda-graph-tokens prefill-attention-backend prefill-cp-mode
                prefill-delayer-forward-passes-buckets prompt-tokens-buckets quantization
                radix-eviction-policy reasoning-parser retraction-policy
                return-hidden-states-mode sampling-backend sampling-defaults
                schedule-policy speculative-algorithm speculative-attention-mode
                speculative-draft-attention-backend speculative-draft-kv-cache-dtype
                speculative-draft-model-quantization speculative-dsa-topk-backend
                speculative-moe-a2a-backend speculative-moe-runner-backend
                speculative-ngram-match-type tokenizer-backend tokenizer-mode
                tool-call-parser torchao-config
                """,
            ),
            ("lora-paths", Text.ADAPTERS),
            ("lora-target-modules", Text.PLAIN),
            ("impl", ("auto", "sglang", "transformers")),
            ("model-impl", ("auto", "sglang", "transformers")),
            ("load-format", _FORMATS),
            ("speculative-draft-load-format", _FORMATS),
            *with_form(
                Text.HUB_ID, "speculative-draft-model speculative-draft-model-path tokenizer-path"
            ),
            ("json-model-override-args", HF_OVERRIDES),
            (
                "limit-mm-data-per-request",
                dict(with_form(ParameterKind.INTEGER, "audio image video")),
            ),
            ("model-loader-extra-config", LOADER),
            ("preferred-sampling-params", SAMPLING),
        )
    ),
)
