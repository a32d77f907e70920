"""llama-server, from the README of its folder: https://github.com/ggml-org/llama.cpp/tree/master.

Its `tools`, `agent` and `mcp-servers-*` run commands of the host, `rpc` and the `*-url` ask others.
"""

from typing import Final

from schemas.executor.engine_rules import ParameterKind
from shared.engines.allow_list import AllowList, Text, with_form

LLAMACPP: Final = AllowList(
    engine="llamacpp",
    version="b9628",
    forms=dict(
        (
            *with_form(
                ParameterKind.INTEGER,
                """
                batch-size cache-ram cache-reuse checkpoint-min-step ctx-checkpoints
                ctx-size dry-allowed-length dry-penalty-last-n embd-normalize fit-ctx
                image-max-tokens image-min-tokens keep kv-unified-per-slot log-verbosity main-gpu
                mirostat moe-cache-mib mtmd-batch-max-tokens n-cpu-ffn n-cpu-moe n-predict parallel
                poll poll-batch predict prio prio-batch reasoning-budget repeat-last-n seed
                sleep-idle-seconds spec-draft-n-max spec-draft-n-min spec-draft-poll
                spec-draft-prio spec-draft-threads spec-draft-threads-batch
                spec-ngram-map-k-min-hits spec-ngram-map-k-size-m spec-ngram-map-k-size-n
                spec-ngram-mod-n-match spec-ngram-mod-n-max spec-ngram-mod-n-min
                spec-ngram-simple-min-hits spec-ngram-simple-size-m spec-ngram-simple-size-n
                swa-checkpoints sse-ping-interval threads threads-batch threads-batch-draft
                threads-draft threads-http timeout top-k ubatch-size verbosity yarn-orig-ctx
                """,
            ),
            *with_form(
                ParameterKind.NUMBER,
                """
                adaptive-decay adaptive-target defrag-thold draft-p-min draft-p-split dry-base
                dry-multiplier dynatemp-exp dynatemp-range frequency-penalty min-p mirostat-ent
                mirostat-lr presence-penalty repeat-penalty rope-freq-base rope-freq-scale
                rope-scale slot-prompt-similarity spec-draft-p-min spec-draft-p-split temp
                temperature top-n-sigma top-nsigma top-p typical typical-p video-fps xtc-probability
                xtc-threshold yarn-attn-factor yarn-beta-fast yarn-beta-slow yarn-ext-factor
                """,
            ),
            *with_form(
                ParameterKind.SWITCH,
                """
                backend-sampling cache-idle-slots cache-prompt check-tensors cont-batching
                context-shift cpu-moe cpu-moe-draft direct-io embedding embeddings escape no-host
                ignore-eos jinja kv-offload kv-unified log-prefix log-timestamps metrics mlock mmap
                mmproj-auto mmproj-offload offline op-offload perf prefill-assistant
                reasoning-preserve repack rerank reranking skip-chat-parsing slots
                spec-draft-backend-sampling spec-draft-cpu-moe special spm-infill swa-full warmup
                """,
            ),
            *with_form(
                Text.PLAIN,
                """
                cache-type-k cache-type-k-draft cache-type-v cache-type-v-draft cpu-mask
                cpu-mask-batch cpu-range cpu-range-batch cpu-strict cpu-strict-batch device
                device-draft draft draft-max draft-min draft-n draft-n-min fit fit-target flash-attn
                gpu-layers gpu-layers-draft lazy-mode load-mode log-colors mmproj-device
                n-cpu-moe-draft n-gpu-layers n-gpu-layers-draft numa pooling reasoning
                reasoning-effort reasoning-format rope-scaling sampler-seq samplers sampling-seq
                spec-draft-cpu-mask spec-draft-cpu-range spec-draft-device spec-draft-n-cpu-moe
                spec-draft-ngl spec-draft-sampling spec-draft-type-k spec-draft-type-v
                spec-synth-len spec-synth-rates spec-type split-mode tensor-split
                """,
            ),
            *with_form(Text.HUB_ID, "hf-repo-draft spec-draft-hf"),
        )
    ),
)
