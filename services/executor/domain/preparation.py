"""When a node may make something ready for an experiment that still waits for its GPUs."""

from collections.abc import Iterable
from typing import Final

from schemas.executor.attempts import AttemptPhase, EngineSpec

_MEASURED: Final = frozenset({AttemptPhase.WARMING_UP, AttemptPhase.MEASURING})


def is_measuring(phases: Iterable[AttemptPhase]) -> bool:
    """Return whether other work on the host would distort what these attempts measure."""
    return not _MEASURED.isdisjoint(phases)


def spares_memory(weights_bytes: int, available_bytes: int, percent: float) -> bool:
    """Return whether the page cache may hold that many bytes of weights."""
    return weights_bytes <= available_bytes * percent / 100


def spares_disk(free_bytes: int, total_bytes: int, percent: float, *, is_begun: bool) -> bool:
    """Return whether an image may be pulled that no attempt needs yet.

    A pull under way may use half of the space that is to stay free, so that it is not aborted
    shortly before its end.
    """
    return free_bytes >= total_bytes * percent / (200 if is_begun else 100)


def needs(engine: EngineSpec) -> tuple[str, ...]:
    """Return a key, equal where the same image and model have to be at hand."""
    return (engine.runtime.value, engine.engine.lower(), engine.image_tag or "", engine.model)
