"""What keeps a level from being faster."""

from enum import StrEnum

from msgspec import Struct


class Bound(StrEnum):
    """What keeps a level from being faster. `decode` is the memory's bandwidth, `queue` that no
    more requests run at once, `client` the load generator.
    """

    PREFILL = "prefill"
    DECODE = "decode"
    KV_CACHE = "kv_cache"
    QUEUE = "queue"
    CLIENT = "client"
    POWER = "power"
    THERMAL = "thermal"


class LevelBound(Struct, frozen=True, kw_only=True):
    """A level's bound, with what shows it, for people."""

    bound: Bound
    evidence: str
