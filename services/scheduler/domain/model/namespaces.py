"""What namespaces may hold, as administrators set it, and what they have held of late."""

from typing import Final

from msgspec import Struct


class Quota(Struct, frozen=True, kw_only=True):
    """What a namespace may hold at once, in hundredths of GPUs: at most its `limit`, None is none.

    No other may withhold the `guaranteed`; what it holds above that is borrowed. `weight`:
    how many times as much as one of weight 1 it is due.
    """

    namespace: str
    limit: int | None = None
    guaranteed: int = 0
    weight: int = 1


class Held(Struct, frozen=True, kw_only=True):
    """GPUs in hundredths, CPUs in thousandths and host memory in MB; of use, times seconds."""

    hundredths: int = 0
    cpu_milli: int = 0
    memory_mb: int = 0


class Use(Struct, frozen=True, kw_only=True):
    """What namespaces have held, decayed: at most `window_seconds` of what there is."""

    window_seconds: int = 1
    by_namespace: dict[str, Held] = {}


NOTHING: Final = Held()
NO_QUOTA: Final = Quota(namespace="")
NO_USE: Final = Use()
