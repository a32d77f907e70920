"""When a node may make something ready for an experiment that still waits for its GPUs."""

from collections.abc import Iterable
from typing import Final

from schemas.executor.attempts import AttemptPhase, EngineSpec

_MEASURED: Final = frozenset({AttemptPhase.WARMING_UP, AttemptPhase.MEASURING})


def is_measuring(phases: Iterable[AttemptPhase]) -> bool:
    """Whether work beside these attempts would show in what they measure."""
    return not _MEASURED.isdisjoint(phases)


def spares_memory(weights_bytes: int, available_bytes: int, percent: float) -> bool:
    """Whether the page cache may hold so much of weights."""
    return weights_bytes <= available_bytes * percent / 100


def spares_disk(free_bytes: int, total_bytes: int, percent: float, *, is_begun: bool) -> bool:
    """Whether an image may be pulled that no attempt needs yet. What is begun may take half of what
    is to stay free, so that it is not broken off for the last of it.
    """
    return free_bytes >= total_bytes * percent / (200 if is_begun else 100)


def needs(engine: EngineSpec) -> tuple[str, ...]:
    """Equal where what has to be at hand is the same: the image and the model."""
    return (engine.runtime.value, engine.engine.lower(), engine.image_tag or "", engine.model)
