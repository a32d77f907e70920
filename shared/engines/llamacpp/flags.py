"""The flags that a task may give our process of llama.cpp."""

from typing import Final

from shared.engines.flags import Flag, FlagKind

CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

FLAGS: Final = (
    Flag("threads", FlagKind.INTEGER, "threads that generate", minimum=1, maximum=1024),
    Flag("threads-batch", FlagKind.INTEGER, "threads that read prompts", minimum=1, maximum=1024),
    Flag("parallel", FlagKind.INTEGER, "requests served at once (slots)", minimum=1, maximum=256),
    Flag(
        "ctx-size",
        FlagKind.INTEGER,
        "context in tokens, shared out among the slots; 0 gives each the model's own",
        minimum=0,
    ),
    Flag("batch-size", FlagKind.INTEGER, "tokens per logical batch", minimum=1),
    Flag("ubatch-size", FlagKind.INTEGER, "tokens per physical batch", minimum=1),
    Flag("cont-batching", FlagKind.SWITCH, "let requests join a running batch"),
    Flag("cache-prompt", FlagKind.SWITCH, "reuse what prompts have in common"),
    Flag("flash-attn", FlagKind.CHOICE, "flash attention", choices=("on", "off", "auto")),
    Flag("cache-type-k", FlagKind.CHOICE, "type of the cached keys", choices=CACHE_TYPES),
    Flag(
        "cache-type-v",
        FlagKind.CHOICE,
        "type of the cached values; a quantized one needs flash attention",
        choices=CACHE_TYPES,
    ),
    Flag("embeddings", FlagKind.SWITCH, "answer /v1/embeddings, and no chat"),
    Flag("reranking", FlagKind.SWITCH, "answer /v1/rerank, and no chat"),
    Flag(
        "pooling",
        FlagKind.CHOICE,
        "how a text's vector is made; absent: as the model says, if it does",
        choices=("mean", "cls", "last", "rank"),
    ),
    Flag("gpu-layers", FlagKind.INTEGER, "layers kept on the GPU; -1 all", minimum=-1),
)
