"""The steps that strategies share: each returns its proposal, or None where it has none."""

from collections.abc import Sequence

from schemas.task.task_file import OptimizationSpec, StopReason
from services.orchestrator.domain.configurations import MAX_TASK_EXPERIMENTS
from services.orchestrator.domain.search import tpe
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.prior import best_predicted
from services.orchestrator.domain.search.search import DEFAULT_EXPERIMENTS, Proposal, Situation
from services.orchestrator.domain.search.space import Place, Space, draw_new
from services.orchestrator.domain.search.warm_start import best_untried


def count_within(spec: OptimizationSpec, space: Space, default: int = DEFAULT_EXPERIMENTS) -> int:
    """Return the experiments that a task allows: no more than there are configurations."""
    count = min(spec.max_iterations or default, MAX_TASK_EXPERIMENTS)
    return min(count, space.size or count)


def stop_at_limit(situation: Situation) -> StopReason | None:
    """Stop once as many configurations were tried as the search makes at most."""
    count, size = len(situation.own_trials), situation.search.space.size
    if count < situation.search.experiments:
        return None
    is_all = size is not None and count >= size
    return StopReason.SPACE_EXHAUSTED if is_all else StopReason.MAX_ITERATIONS


def repeat_past_best(situation: Situation) -> Proposal | None:
    """Measure the best of earlier tasks again, before anything else."""
    place = best_untried(situation.past, situation.own_trials)
    if place is None or not situation.is_promising(place):
        return None
    return situation.propose(
        place, f"the best of {len(situation.past)} past experiments, measured again"
    )


def propose_predicted(situation: Situation, place: Place | None) -> Proposal | None:
    """Propose the place that the prior predicts best."""
    prior = situation.search.prior
    if prior is None or place is None or not situation.is_promising(place):
        return None
    source = "AIConfigurator for" if prior.forecasts is not None else "the roofline of"
    return situation.propose(place, f"the best that is left by {source} {prior.gpu.model}")


def predict_best(situation: Situation) -> Place | None:
    """Return the best predicted of the promising places; None without a prior."""
    search = situation.search
    if search.prior is None:
        return None
    return best_predicted(search.prior, search.space, situation.random, situation.is_promising)


def count_measured(trials: Sequence[Trial]) -> int:
    """Return how many trials have a standing in the space."""
    return sum(trial.place is not None and trial.standing is not None for trial in trials)


def count_placed(trials: Sequence[Trial]) -> int:
    """Return how many trials are in the space."""
    return sum(trial.place is not None for trial in trials)


def propose_most_promising(situation: Situation) -> Proposal | None:
    """Propose by the measurements so far (Optuna's TPE)."""
    space, random = situation.search.space, situation.random
    seed = random.randrange(2**32)
    place = tpe.suggest(space, situation.standings, seed, situation.is_promising)
    if place is None:
        return None
    past = count_placed(situation.past)
    reason = f"the most promising by {count_measured(situation.own_trials)} measured"
    return situation.propose(place, reason + (f" and {past} past experiments" if past else ""))


def draw_at_random(situation: Situation, drawn: int = 0) -> Proposal | StopReason:
    """Draw a configuration, of `drawn` in all; 0: of any number. Stop if there is none left."""
    space, random = situation.search.space, situation.random
    place = draw_new(space, random, situation.is_promising, situation.turn)
    if place is None:
        is_any_left = draw_new(space, random, situation.is_new) is not None
        return StopReason.ONLY_CRASHES_LEFT if is_any_left else StopReason.SPACE_EXHAUSTED
    count = f", {min(situation.number, drawn)} of {drawn}" if drawn else ""
    return situation.propose(place, f"drawn at random{count}")
