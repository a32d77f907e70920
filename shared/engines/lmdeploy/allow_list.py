"""LMDeploy: `lmdeploy serve api_server` of v0.16.0, read from its lmdeploy/cli/serve.py."""

from typing import Final

from schemas.executor.engine_rules import ParameterKind
from shared.engines.allow_list import SHARE, AllowList, Text, one_of, with_form

LMDEPLOY: Final = AllowList(
    engine="lmdeploy",
    version="0.16",
    forms=dict(
        (
            *with_form(
                ParameterKind.INTEGER,
                """
                block-size cache-block-seq-len cp dp ep kernel-block-size max-batch-size
                max-concurrent-requests max-log-len max-prefill-iters max-prefill-token-num
                num-tokens-per-iter session-len speculative-num-draft-tokens tp
                vision-max-batch-size
                """,
            ),
            *with_form(ParameterKind.NUMBER, "rope-scaling-factor"),
            *with_form(
                ParameterKind.SWITCH,
                """
                disable-metrics eager-mode enable-abort-handling enable-eplb enable-microbatch
                enable-prefix-caching language-model-only
                """,
            ),
            *with_form(
                Text.PLAIN,
                """
                async cudagraph-capture-batch-sizes logprobs-mode quant-policy reasoning-parser
                speculative-algorithm tool-call-parser
                """,
            ),
            ("backend", one_of("pytorch turbomind")),
            ("cache-max-entry-count", SHARE),
            ("communicator", one_of("nccl native cuda-ipc")),
            ("dtype", one_of("auto float16 bfloat16")),
            ("log-level", one_of("CRITICAL FATAL ERROR WARN WARNING INFO DEBUG NOTSET")),
            ("model-format", one_of("hf awq gptq compressed-tensors fp8 mxfp4")),
            *with_form(Text.HUB_ID, "speculative-draft-model"),
        )
    ),
)
