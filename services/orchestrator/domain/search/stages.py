"""A search in stages: what matters most first, each stage with the best of the stage before."""

import math
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from services.orchestrator.domain.plan.expansion import CONFIGURATIONS, Axis
from services.orchestrator.domain.search import tpe
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.space import Place, Space, draw_new
from shared.gpu.sizing import degree_named, hyphenated

SMALL: Final = 8  # configurations that a stage tries all of
MOST: Final = 20  # experiments of a stage
TOGETHER: Final = 8  # experiments in which everything varies, after the last stage

# By name as flags spell it: how the model is laid out, then how much runs at once. The rest are
# flags of the scheduler and what is not known here.
LAYOUT: Final = frozenset(
    {
        *("attention-context-parallel-size", "attn-cp-size", "dtype", "enable-dp-attention"),
        *("enable-expert-parallel", "ep", "ep-size", "expert-parallel-size"),
        *("moe-data-parallel-size", "moe-dense-tp-size", "moe-dp-size", "quantization"),
        *("split-mode", "threads", "threads-batch"),
    }
)
LOAD: Final = frozenset(
    {
        *("batch-size", "block-size", "chunked-prefill-size", "context-length", "ctx-size"),
        *("cuda-graph-max-bs", "gpu-memory-utilization", "kv-cache-dtype", "max-model-len"),
        *("max-num-batched-tokens", "max-num-seqs", "max-prefill-tokens"),
        *("max-running-requests", "max-total-tokens", "mem-frac", "mem-fraction-static"),
        *("n-gpu-layers", "num-gpu-blocks-override", "page-size", "parallel", "slots"),
        *("ubatch-size",),
    }
)


class Stage(Struct, frozen=True, kw_only=True):
    """The dimensions that vary in it, by number, and how many experiments it may take."""

    title: str
    numbers: tuple[int, ...]
    size: int | None
    experiments: int


class Waiting(Struct, frozen=True):
    """The next stage begins when what runs is measured."""


def stages_of(space: Space) -> tuple[Stage, ...]:
    """Those of dimensions that vary."""
    numbers: dict[str, list[int]] = {"parallel layout": [], "load": [], "scheduler flags": []}
    for number, dimension in enumerate(space.dimensions):
        if dimension.continuous is not None or len(dimension.values) > 1:
            numbers[_title(dimension.axis)].append(number)
    return tuple(
        Stage(
            title=title,
            numbers=tuple(own),
            size=(size := _part(space, own).size),
            experiments=_experiments(size),
        )
        for title, own in numbers.items()
        if own
    )


def experiments_of(stages: Sequence[Stage], size: int | None) -> int:
    """How many all stages and what follows may take, at most half of a space of more than `SMALL`.

    Each begins with one that is known already.
    """
    wanted = sum(stage.experiments - 1 for stage in stages) + 1 + TOGETHER
    return wanted if size is None else min(wanted, size, max(SMALL, math.ceil(size / 2)))


def next_in_stages(
    stages: Sequence[Stage],
    space: Space,
    held: Place,
    history: Sequence[Trial],
    random: Random,
    is_wanted: Callable[[Place], bool],
) -> tuple[Place, str] | Waiting | None:
    """A place with the reason for it; None: every stage is over. The first varies around `held`."""
    for count, stage in enumerate(stages, start=1):
        inside = [t for t in history if t.place is not None and _is_inside(stage, held, t.place)]
        place = None
        if len({trial.place for trial in inside}) < stage.experiments:
            place = _next(stage, space, held, inside, random, is_wanted)
        if place is not None:
            return place, f"stage {count} of {len(stages)}, {stage.title}"
        if any(trial.is_open for trial in inside):
            return Waiting()
        measured = [t for t in inside if t.standing is not None and not t.has_failed]
        best = min(measured, key=lambda t: (t.standing, t.ordinal), default=None)
        held = best.place if best is not None and best.place is not None else held
    return None


def _next(
    stage: Stage,
    space: Space,
    held: Place,
    inside: Sequence[Trial],
    random: Random,
    is_wanted: Callable[[Place], bool],
) -> Place | None:
    if is_wanted(held):
        return held
    part = _part(space, stage.numbers)

    def whole(own: Place) -> Place:
        values = dict(zip(stage.numbers, own, strict=True))
        return tuple(values.get(number, at) for number, at in enumerate(held))

    def is_own_wanted(own: Place) -> bool:
        return is_wanted(whole(own))

    if stage.size is not None and stage.size <= stage.experiments:
        own = next(filter(is_own_wanted, part.places()), None)
        return None if own is None else whole(own)
    known = [
        (tuple(t.place[number] for number in stage.numbers), t.standing)
        for t in inside
        if t.place is not None
    ]
    own = None
    if sum(standing is not None for _, standing in known) > stage.experiments // 4:
        own = tpe.suggest(part, known, random.randrange(2**32), is_own_wanted)
    own = own or draw_new(part, random, is_own_wanted)
    return None if own is None else whole(own)


def _title(axis: Axis) -> str:
    """The earliest stage of what it varies."""
    flags = {hyphenated(name) for name in axis.columns()}
    is_of_block = axis.block not in {"parameters", CONFIGURATIONS}
    if is_of_block or flags & LAYOUT or any(map(degree_named, flags)):
        return "parallel layout"
    return "load" if flags & LOAD else "scheduler flags"


def _experiments(size: int | None) -> int:
    if size is None:
        return MOST
    return size if size <= SMALL else min(SMALL + size // 4, MOST)


def _part(space: Space, numbers: Iterable[int]) -> Space:
    return Space(dimensions=tuple(space.dimensions[number] for number in numbers))


def _is_inside(stage: Stage, held: Place, place: Place) -> bool:
    return all(
        number in stage.numbers or at == own
        for number, (at, own) in enumerate(zip(place, held, strict=True))
    )
