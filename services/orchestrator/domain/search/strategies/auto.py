"""A search in stages: what matters most first, each stage with the best of the stage before.

Of a task over several engines each has its own stages, by turns: none is left for being behind
before it is tuned.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.task.task_file import OptimizationSpec
from services.orchestrator.domain.configurations import CONFIGURATIONS, ENGINE, ENV, Axis
from services.orchestrator.domain.search import tpe
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.prior import best_predicted
from services.orchestrator.domain.search.search import (
    Answer,
    Proposal,
    Search,
    SearchStrategy,
    Situation,
    Waiting,
)
from services.orchestrator.domain.search.space import Place, Space, draw_new, middle
from services.orchestrator.domain.search.steps import (
    count_measured,
    count_within,
    draw_at_random,
    propose_most_promising,
    propose_predicted,
    repeat_past_best,
    stop_at_limit,
)
from services.orchestrator.domain.search.strategies import bayesian
from shared.engines.variants import title_of, variant_of
from shared.gpu.sizing import degree_named, hyphenate

EXHAUSTIVE_LIMIT: Final = 8  # configurations that a stage tries all of
MAX_STAGE_EXPERIMENTS: Final = 20
JOINT_EXPERIMENTS: Final = 8  # in which everything varies, after the last stage

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
        *("free-gpu-memory-fraction", "max-batch-size", "max-num-tokens", "max-seq-len"),
        *("ubatch-size",),
    }
)


class Stage(Struct, frozen=True, kw_only=True):
    """The dimensions that vary in it, by number, and how many experiments it may take, all of one
    `engine`; None: the only one.
    """

    title: str
    engine: int | None = None
    numbers: tuple[int, ...]
    size: int | None
    experiments: int


class StagedSearch:
    """Varies the parallel layout, then the load, then the rest, and at last everything at once."""

    avoids_crashes = True

    def count_experiments(self, spec: OptimizationSpec, space: Space) -> int:
        stages = stages_of(space)
        if not stages:
            return count_within(spec, space)
        return count_within(spec, space, default=_count_staged(stages, space))

    def next(self, situation: Situation) -> Answer:
        stages = stages_of(situation.search.space)
        if not stages:
            return bayesian.STRATEGY.next(situation)
        return (
            stop_at_limit(situation)
            or repeat_past_best(situation)
            or _propose_first_prediction(situation)
            or _next_in_stages(stages, situation)
            or (propose_most_promising(situation) if count_measured(situation.own_trials) else None)
            or draw_at_random(situation)
        )

    def describe(self, search: Search) -> str:
        stages = stages_of(search.space)
        if not stages:
            return bayesian.STRATEGY.describe(search)
        texts = [f"{_full_title(search, stage)}, {_stage_text(search, stage)}" for stage in stages]
        return (
            f"in stages that hold the best of the one before: {'; '.join(texts)}; then "
            "everything together"
        )


def stages_of(space: Space) -> tuple[Stage, ...]:
    """Return the stages of the dimensions that vary, of one engine after the other."""
    return tuple(stage for engine in space.parts for stage in _stages_of_engine(space, engine))


def _stages_of_engine(space: Space, engine: int | None) -> Iterator[Stage]:
    numbers: dict[str, list[int]] = {
        title: [] for title in ("version", "parallel layout", "load", "scheduler flags")
    }
    for number in space.numbers_of(engine):
        dimension = space.dimensions[number]
        if not dimension.axis.is_of_engines and (
            dimension.continuous is not None or len(dimension.values) > 1
        ):
            numbers[_title(dimension.axis)].append(number)
    for title, own_numbers in numbers.items():
        if own_numbers:
            size = _part(space, own_numbers).size
            yield Stage(
                title=title,
                engine=engine,
                numbers=tuple(own_numbers),
                size=size,
                experiments=_experiments(size),
            )


def _count_staged(stages: Sequence[Stage], space: Space) -> int:
    """Return how many experiments all stages and what follows may take, at most half of a space
    of more than `EXHAUSTIVE_LIMIT`.

    Each stage begins with a configuration that was measured in the one before.
    """
    firsts, size = len(space.parts), space.size
    count = sum(stage.experiments - 1 for stage in stages) + firsts + JOINT_EXPERIMENTS
    return count if size is None else min(count, size, max(EXHAUSTIVE_LIMIT, math.ceil(size / 2)))


def _propose_first_prediction(situation: Situation) -> Proposal | None:
    if situation.number > 1:
        return None
    return propose_predicted(situation, _predict_start(situation.search))


def _predict_start(search: Search) -> Place | None:
    """Return the best that a prior predicts of the whole space, the same at every call."""
    if search.prior is None:
        return None
    random = Random(search.seed)  # noqa: S311 - repeatable, not secret
    return best_predicted(search.prior, search.space, random, lambda _: True)


def _choose_start(situation: Situation, engine: int | None) -> Place | Waiting:
    """Return what stages begin with: the middle, or what a prior predicted best, if better."""
    space = situation.search.space
    default = middle(space, engine)
    by_place = {trial.place: trial for trial in situation.own_trials}
    predicted, central = by_place.get(_predict_start(situation.search)), by_place.get(default)
    if predicted is None or central is None or predicted is central or predicted.place is None:
        return default
    if space.engine_at(predicted.place) != engine:
        return default
    if predicted.is_open or central.is_open:
        return Waiting()
    is_better = (
        predicted.standing is not None
        and not predicted.has_failed
        and (central.standing is None or predicted.standing < central.standing)
    )
    return predicted.place if is_better else default


def _next_in_stages(stages: Sequence[Stage], situation: Situation) -> Proposal | Waiting | None:
    """Return the next of a stage, of the engine that was tried least; None: every stage is over."""
    is_waiting = False
    for engine in situation.turn:
        own_stages = [stage for stage in stages if stage.engine == engine]
        step = _next_of_engine(engine, own_stages, situation)
        if isinstance(step, Proposal):
            return step
        is_waiting |= step is not None
    return Waiting() if is_waiting else None


def _next_of_engine(
    engine: int | None, stages: Sequence[Stage], situation: Situation
) -> Proposal | Waiting | None:
    incumbent = _choose_start(situation, engine)
    if isinstance(incumbent, Waiting):
        return incumbent
    if not stages and situation.is_promising(incumbent):  # it has one configuration
        return situation.propose(incumbent, "the only one of its engine")
    for count, stage in enumerate(stages, start=1):
        trials = [
            trial
            for trial in situation.own_trials
            if trial.place is not None and _is_inside(stage, incumbent, trial.place)
        ]
        place = None
        if len({trial.place for trial in trials}) < stage.experiments:
            place = _vary(stage, situation, incumbent, trials)
        if place is not None:
            title = _full_title(situation.search, stage)
            return situation.propose(place, f"stage {count} of {len(stages)}, {title}")
        if any(trial.is_open for trial in trials):
            return Waiting()
        measured = [t for t in trials if t.standing is not None and not t.has_failed]
        best = min(measured, key=lambda t: (t.standing, t.ordinal), default=None)
        incumbent = best.place if best is not None and best.place is not None else incumbent
    return None


def _vary(
    stage: Stage, situation: Situation, incumbent: Place, trials: Sequence[Trial]
) -> Place | None:
    """Return a new place of the stage: the incumbent with other values of its dimensions."""
    if situation.is_promising(incumbent):
        return incumbent
    random, part = situation.random, _part(situation.search.space, stage.numbers)

    def complete(values: Place) -> Place:
        by_number = dict(zip(stage.numbers, values, strict=True))
        return tuple(by_number.get(number, at) for number, at in enumerate(incumbent))

    def is_promising(values: Place) -> bool:
        return situation.is_promising(complete(values))

    if stage.size is not None and stage.size <= stage.experiments:
        values = next(filter(is_promising, part.places()), None)
        return None if values is None else complete(values)
    standings = [
        (tuple(trial.place[number] for number in stage.numbers), trial.standing)
        for trial in trials
        if trial.place is not None
    ]
    values = None
    if sum(standing is not None for _, standing in standings) > stage.experiments // 4:
        values = tpe.suggest(part, standings, random.randrange(2**32), is_promising)
    values = values or draw_new(part, random, is_promising)
    return None if values is None else complete(values)


def _title(axis: Axis) -> str:
    """Return the title of the earliest stage that varies one of the axis's flags."""
    flags = {hyphenate(name) for name in axis.columns()}
    if axis.block == ENGINE:
        return "version"
    is_of_block = axis.block not in {"parameters", CONFIGURATIONS, ENV}
    if is_of_block or flags & LAYOUT or any(map(degree_named, flags)):
        return "parallel layout"
    return "load" if flags & LOAD else "scheduler flags"


def _experiments(size: int | None) -> int:
    if size is None:
        return MAX_STAGE_EXPERIMENTS
    if size <= EXHAUSTIVE_LIMIT:
        return size
    return min(EXHAUSTIVE_LIMIT + size // 4, MAX_STAGE_EXPERIMENTS)


def _part(space: Space, numbers: Iterable[int]) -> Space:
    """Return the space of some dimensions of one engine, in which nothing else is its own."""
    dimensions = (space.dimensions[number] for number in numbers)
    return Space(
        dimensions=tuple(
            replace(dimension, axis=replace(dimension.axis, engine=None))
            for dimension in dimensions
        )
    )


def _is_inside(stage: Stage, incumbent: Place, place: Place) -> bool:
    return all(
        number in stage.numbers or at == own_at
        for number, (at, own_at) in enumerate(zip(place, incumbent, strict=True))
    )


def _full_title(search: Search, stage: Stage) -> str:
    if stage.engine is None:
        return stage.title
    row = dict(search.space.dimensions[0].values[stage.engine])
    return f"{title_of(variant_of(row))}: {stage.title}"


def _stage_text(search: Search, stage: Stage) -> str:
    names = ", ".join(search.space.dimensions[number].name for number in stage.numbers)
    of_all = f" of {stage.size}" if stage.size is not None else ""
    return f"{stage.experiments}{of_all} ({names})"


STRATEGY: Final[SearchStrategy] = StagedSearch()
