"""The next configuration of a search."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from schemas.task.task_file import OptimizationSpec, StopReason, Strategy
from services.orchestrator.domain.plan.expansion import LARGEST_TASK, Point
from services.orchestrator.domain.search import tpe
from services.orchestrator.domain.search.crashes import Predict, crash_predictor
from services.orchestrator.domain.search.halving import (
    DEFAULT_CONFIGURATIONS,
    Promotion,
    Rung,
    next_in_rungs,
    rungs_of,
)
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.prior import Prior, best_predicted
from services.orchestrator.domain.search.space import Place, Space, draw_new, middle
from services.orchestrator.domain.search.stages import (
    Stage,
    Waiting,
    experiments_of,
    next_in_stages,
    stages_of,
)
from services.orchestrator.domain.search.warm import best_untried

DEFAULT_EXPERIMENTS: Final = 50
PREDICTED_EVERY: Final = 10
FORESEEN: Final = 6  # of the first experiments, every other is one that a prior foresees best

IsPossible = Callable[[Point], bool]


class Proposal(Struct, frozen=True, kw_only=True):
    """A configuration, and why it is the next."""

    ordinal: int
    point: Point
    reason: str
    divisor: int = 1  # of the requests


class Search(Struct, frozen=True, kw_only=True):
    """How a task is searched: at most `experiments` of `space`, in `stages` or `rungs` if it has
    any, else the first `drawn` at random.
    """

    strategy: Strategy
    space: Space
    experiments: int
    drawn: int
    seed: int
    stages: tuple[Stage, ...] = ()
    rungs: tuple[Rung, ...] = ()
    prior: Prior | None = None


def search_of(
    spec: OptimizationSpec, space: Space, default_seed: int = 0, prior: Prior | None = None
) -> Search:
    """The search that the task file describes, with what it leaves open."""
    rungs: tuple[Rung, ...] = ()
    if spec.strategy is Strategy.SUCCESSIVE_HALVING:
        configurations = min(spec.max_iterations or DEFAULT_CONFIGURATIONS, LARGEST_TASK // 2)
        rungs = rungs_of(min(configurations, space.size or configurations))
    stages = stages_of(space) if spec.strategy is Strategy.AUTO else ()
    default = experiments_of(stages, space.size) if stages else DEFAULT_EXPERIMENTS
    wanted = min(spec.max_iterations or default, LARGEST_TASK)
    experiments = min(wanted, space.size or wanted)
    if rungs:
        experiments = sum(rung.experiments for rung in rungs)
    drawn = experiments
    if spec.strategy is Strategy.BAYESIAN:
        drawn = min(spec.n_initial_random or _drawn_first(experiments), experiments)
    elif stages:
        drawn = 0
    return Search(
        strategy=spec.strategy,
        space=space,
        experiments=experiments,
        drawn=drawn,
        seed=default_seed if spec.seed is None else spec.seed,
        stages=stages,
        rungs=rungs,
        prior=prior,
    )


def propose(
    search: Search, history: Sequence[Trial], is_possible: IsPossible
) -> Proposal | StopReason | Waiting:
    """What is tried next, or why nothing is, or that something else has to be measured before.

    The same search and history give the same answer, in every process. Nothing is proposed twice.
    Trials with an ordinal below 1 are of past tasks: known, and not tried here.
    """
    everything, history = history, [trial for trial in history if trial.ordinal > 0]
    if len(history) >= search.experiments and not search.rungs:
        size = search.space.size
        is_all = size is not None and len(history) >= size
        return StopReason.SPACE_EXHAUSTED if is_all else StopReason.MAX_ITERATIONS
    number = max((trial.ordinal for trial in history), default=0) + 1
    random = Random(f"{search.seed}:{number}")  # noqa: S311 - repeatable, not secret
    known = [(each.place, each.standing) for each in everything if each.place is not None]
    tried = {each.place for each in history}

    def is_new(place: Place) -> bool:
        return place not in tried and is_possible(search.space.point(place))

    would_crash = _crash_predictor(search, history, number)

    def is_wanted(place: Place) -> bool:
        return is_new(place) and not would_crash(place)

    again = best_untried(everything, history)
    if again is not None and is_wanted(again):
        reason = f"the best of {len(everything) - len(history)} past experiments, measured again"
        return Proposal(ordinal=number, point=search.space.point(again), reason=reason)
    foreseen = _foreseen(search, number, random, is_wanted)
    if foreseen is not None:
        return foreseen
    planned = _planned(search, history, number, random, is_wanted)
    if planned is not None:
        return planned
    measured = sum(each.place is not None and each.standing is not None for each in history)
    past = len(known) - sum(each.place is not None for each in history)
    if (number > search.drawn and measured) or past >= search.drawn > 0:
        seed = random.randrange(2**32)
        place = tpe.suggest(search.space, known, seed, is_wanted)
        if place is not None:
            reason = f"the most promising by {measured} measured"
            reason += f" and {past} past experiments" if past else ""
            return Proposal(ordinal=number, point=search.space.point(place), reason=reason)
    place = draw_new(search.space, random, is_wanted)
    if place is None:
        is_left = draw_new(search.space, random, is_new) is not None
        return StopReason.ONLY_CRASHES_LEFT if is_left else StopReason.SPACE_EXHAUSTED
    return Proposal(
        ordinal=number,
        point=search.space.point(place),
        reason=f"drawn at random, {min(number, search.drawn)} of {search.drawn}"
        if search.drawn
        else "drawn at random",
    )


def _foreseen(
    search: Search, number: int, random: Random, is_wanted: Callable[[Place], bool]
) -> Proposal | None:
    """Every other of the first proposals is the best predicted of what is left, before stages one,
    so that a wrong prediction costs no more than these.
    """
    prior = search.prior
    if prior is None or search.rungs or not number % 2:
        return None
    if number > (1 if search.stages else min(FORESEEN, search.drawn)):
        return None
    place = _foreseen_first(search)
    if not search.stages:
        place = best_predicted(prior, search.space, random, is_wanted)
    if place is None or not is_wanted(place):
        return None
    reason = f"the best that is left by the roofline of {prior.gpu.model}"
    return Proposal(ordinal=number, point=search.space.point(place), reason=reason)


def _planned(
    search: Search,
    history: Sequence[Trial],
    number: int,
    random: Random,
    is_wanted: Callable[[Place], bool],
) -> Proposal | StopReason | Waiting | None:
    """What rungs or stages propose; None: there are none, or all stages are over."""
    if search.rungs:
        found = next_in_rungs(search.rungs, search.space, history, random, is_wanted)
        if not isinstance(found, Promotion):
            return found
        point = search.space.point(found.place)
        return Proposal(ordinal=number, point=point, reason=found.reason, divisor=found.divisor)
    if not search.stages:
        return None
    held = _first_held(search, history)
    if isinstance(held, Waiting):
        return held
    staged = next_in_stages(search.stages, search.space, held, history, random, is_wanted)
    if staged is None or isinstance(staged, Waiting):
        return staged
    place, reason = staged
    return Proposal(ordinal=number, point=search.space.point(place), reason=reason)


def _first_held(search: Search, history: Sequence[Trial]) -> Place | Waiting:
    """What stages begin with: the middle, or what a prior foresaw best, where that is better."""
    held = middle(search.space)
    measured = {trial.place: trial for trial in history}
    foreseen, usual = measured.get(_foreseen_first(search)), measured.get(held)
    if foreseen is None or usual is None or foreseen is usual or foreseen.place is None:
        return held
    if foreseen.is_open or usual.is_open:
        return Waiting()
    is_better = (
        foreseen.standing is not None
        and not foreseen.has_failed
        and (usual.standing is None or foreseen.standing < usual.standing)
    )
    return foreseen.place if is_better else held


def _foreseen_first(search: Search) -> Place | None:
    if search.prior is None:
        return None
    random = Random(search.seed)  # noqa: S311 - repeatable, not secret
    return best_predicted(search.prior, search.space, random, lambda _: True)


def _crash_predictor(search: Search, history: Sequence[Trial], number: int) -> Predict:
    """Every tenth proposal goes where a crash is predicted too: predictions may be wrong."""
    if search.strategy is Strategy.RANDOM or number % PREDICTED_EVERY == 0:
        return lambda _: False
    return crash_predictor(search.space, history)


def _drawn_first(experiments: int) -> int:
    return max(3, min(10, experiments // 4))
