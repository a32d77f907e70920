"""The flags of the simulated engine: settable speed and settable faults."""

from enum import StrEnum
from typing import Final

from shared.engines.flags import Flag, FlagKind


class Dialect(StrEnum):
    """Whose names its counters and its cache reset have."""

    VLLM = "vllm"
    SGLANG = "sglang"


class CacheReset(StrEnum):
    """What a prefix cache reset does. `ignored` claims to have reset, and has not."""

    WORKS = "works"
    REFUSED = "refused"
    IGNORED = "ignored"
    ABSENT = "absent"


FLAGS: Final = (
    Flag("ttft-seconds", FlagKind.NUMBER, "time to the first token", minimum=0, maximum=3600),
    Flag("tpot-seconds", FlagKind.NUMBER, "time per further token", minimum=0, maximum=3600),
    Flag(
        "item-seconds",
        FlagKind.NUMBER,
        "further time to the first token for each image, or to the answer for each input or"
        " document",
        minimum=0,
        maximum=3600,
    ),
    Flag("slots", FlagKind.INTEGER, "requests served at once; others wait", minimum=1),
    Flag(
        "tp-size",
        FlagKind.INTEGER,
        "devices the engine pretends to use; both times are divided by it",
        minimum=1,
    ),
    Flag("error-rate", FlagKind.NUMBER, "share answered with 500", minimum=0, maximum=1),
    Flag("cut-rate", FlagKind.NUMBER, "share of streams cut half-way", minimum=0, maximum=1),
    Flag("hang-after-requests", FlagKind.INTEGER, "later requests get no answer", minimum=0),
    Flag("die-after-requests", FlagKind.INTEGER, "the next request ends the process", minimum=0),
    Flag("start-delay-seconds", FlagKind.NUMBER, "time until it is healthy", minimum=0),
    Flag(
        "start-compile-seconds",
        FlagKind.NUMBER,
        "processor time that it computes before, unless $VLLM_CACHE_ROOT has what it compiles",
        minimum=0,
    ),
    Flag("ignore-sigterm", FlagKind.SWITCH, "end on SIGKILL only"),
    Flag("usage", FlagKind.SWITCH, "report token counts when asked"),
    Flag("piece-tokens", FlagKind.INTEGER, "tokens of an answer that come together", minimum=1),
    Flag(
        "reasoning-field",
        FlagKind.CHOICE,
        "where all of an answer stands as thoughts, and none of it as content",
        choices=("reasoning", "reasoning_content"),
    ),
    Flag("seed", FlagKind.INTEGER, "seed of the faults"),
    Flag(
        "adapters",
        FlagKind.INTEGER,
        "models it has beside its own, as LoRA adapters are: adapter-1 and on",
        minimum=0,
    ),
    Flag(
        "answer-drift",
        FlagKind.NUMBER,
        "share of prompts whose unstreamed answers become others half-way",
        minimum=0,
        maximum=1,
    ),
    Flag(
        "step-seconds",
        FlagKind.NUMBER,
        "time of a batch's step; with it the engine batches, without ttft and tpot are fixed",
        minimum=0.0001,
        maximum=3600,
    ),
    Flag("prefill-token-seconds", FlagKind.NUMBER, "time per prompt token computed", minimum=0),
    Flag(
        "kv-token-seconds",
        FlagKind.NUMBER,
        "time per cached token that decoding reads in a step: the memory's bandwidth",
        minimum=0,
    ),
    Flag("compile-seconds", FlagKind.NUMBER, "further time of each batch size's first", minimum=0),
    Flag("kv-tokens", FlagKind.INTEGER, "room of the KV cache; beyond it it preempts", minimum=1),
    Flag("batch-tokens", FlagKind.INTEGER, "most tokens of one step", minimum=1),
    Flag("prefix-cache", FlagKind.SWITCH, "compute a prompt's known beginning once only"),
    Flag(
        "dialect",
        FlagKind.CHOICE,
        "whose /metrics and cache reset it has",
        choices=tuple(Dialect),
    ),
    Flag(
        "cache-reset",
        FlagKind.CHOICE,
        "what a reset of the prefix cache does; ignored claims that it did",
        choices=tuple(CacheReset),
    ),
)
