"""The next configuration of a search."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from schemas.task import OptimizationSpec, StopReason, Strategy
from services.orchestrator.domain.expansion import LARGEST_TASK, Point
from services.orchestrator.domain.search import tpe
from services.orchestrator.domain.search.crashes import Predict, crash_predictor
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.space import Place, Space

DEFAULT_EXPERIMENTS: Final = 50
PREDICTED_EVERY: Final = 10
_DRAWS: Final = 200
_LARGEST_COUNTED: Final = 20_000

IsPossible = Callable[[Point], bool]


class Proposal(Struct, frozen=True, kw_only=True):
    """A configuration, and why it is the next."""

    ordinal: int
    point: Point
    reason: str


class Search(Struct, frozen=True, kw_only=True):
    """How a task is searched: at most `experiments` of `space`, the first `drawn` at random."""

    strategy: Strategy
    space: Space
    experiments: int
    drawn: int
    seed: int


def search_of(spec: OptimizationSpec, space: Space, default_seed: int = 0) -> Search:
    """The search that the task file describes, with what it leaves open."""
    wanted = min(spec.max_iterations or DEFAULT_EXPERIMENTS, LARGEST_TASK)
    experiments = min(wanted, space.size or wanted)
    drawn = experiments
    if spec.strategy is Strategy.BAYESIAN:
        drawn = min(spec.n_initial_random or _drawn_first(experiments), experiments)
    return Search(
        strategy=spec.strategy,
        space=space,
        experiments=experiments,
        drawn=drawn,
        seed=default_seed if spec.seed is None else spec.seed,
    )


def propose(
    search: Search, history: Sequence[Trial], is_possible: IsPossible
) -> Proposal | StopReason:
    """What is tried next, or why nothing is.

    The same search and history give the same answer, in every process. Nothing is proposed twice.
    """
    if len(history) >= search.experiments:
        size = search.space.size
        is_all = size is not None and len(history) >= size
        return StopReason.SPACE_EXHAUSTED if is_all else StopReason.MAX_ITERATIONS
    number = max((trial.ordinal for trial in history), default=0) + 1
    random = Random(f"{search.seed}:{number}")  # noqa: S311 - repeatable, not secret
    known = [(each.place, each.standing) for each in history if each.place is not None]
    tried = {place for place, _ in known}

    def is_new(place: Place) -> bool:
        return place not in tried and is_possible(search.space.point(place))

    would_crash = _crash_predictor(search, history, number)

    def is_wanted(place: Place) -> bool:
        return is_new(place) and not would_crash(place)

    measured = sum(standing is not None for _, standing in known)
    if number > search.drawn and measured:
        seed = random.randrange(2**32)
        place = tpe.suggest(search.space, known, seed, is_wanted)
        if place is not None:
            reason = f"the most promising by {measured} measured"
            return Proposal(ordinal=number, point=search.space.point(place), reason=reason)
    place = _draw(search.space, random, is_wanted)
    if place is None:
        is_left = _draw(search.space, random, is_new) is not None
        return StopReason.ONLY_CRASHES_LEFT if is_left else StopReason.SPACE_EXHAUSTED
    return Proposal(
        ordinal=number,
        point=search.space.point(place),
        reason=f"drawn at random, {min(number, search.drawn)} of {search.drawn}",
    )


def _crash_predictor(search: Search, history: Sequence[Trial], number: int) -> Predict:
    """Every tenth proposal goes where a crash is predicted too: predictions may be wrong."""
    if search.strategy is Strategy.RANDOM or number % PREDICTED_EVERY == 0:
        return lambda _: False
    return crash_predictor(search.space, history)


def _drawn_first(experiments: int) -> int:
    return max(3, min(10, experiments // 4))


def _draw(space: Space, random: Random, is_new: Callable[[Place], bool]) -> Place | None:
    """None if nothing new is left, or is too rare to be found."""
    for _ in range(_DRAWS):
        place = space.draw(random)
        if is_new(place):
            return place
    if space.size is None or space.size > _LARGEST_COUNTED:
        return None
    left = [place for place in space.places() if is_new(place)]
    return random.choice(left) if left else None
