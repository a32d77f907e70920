"""The next experiment of a search: a question that is answered without any lock, as it takes 50 ms
of the processor, and an answer that counts as long as the question is the same.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from schemas.orchestrator.views import PlannedExperiment
from schemas.task.task_file import StopReason, TaskFile
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.installation.offers import Offer
from services.orchestrator.domain.lifecycle.budget import keep_priced_gpus
from services.orchestrator.domain.plan.memory_rule import fit_request
from services.orchestrator.domain.plan.plan import check_task, make_search
from services.orchestrator.domain.plan.task_planner import TaskPlanner, make_task_planner
from services.orchestrator.domain.progress.lost_engines import find_lost_engines
from services.orchestrator.domain.progress.snapshot import TaskSnapshot
from services.orchestrator.domain.records import Task
from services.orchestrator.domain.search.history import (
    RunRecord,
    Trial,
    trials_of,
    with_settings_compared,
)
from services.orchestrator.domain.search.prior import predict_score
from services.orchestrator.domain.search.propose import propose
from services.orchestrator.domain.search.search import Proposal, Search
from services.orchestrator.domain.search.warm_start import past_of
from shared.engines.variants import Variant
from shared.errors import RefusedError

SEARCH_ROLES = frozenset({RunRole.SEARCH, RunRole.SCREEN})


class Question(Struct, frozen=True, kw_only=True):
    """What a task tries next: two that are equal have the same answer. `lost` are engines that it
    goes on without.
    """

    file: TaskFile
    search: Search
    trials: Sequence[Trial]
    offers: Sequence[Offer]
    lost: frozenset[Variant] = frozenset()


class PlannedProposal(Struct, frozen=True, kw_only=True):
    """A proposed experiment as it would be stored, and why it is the next."""

    planned: PlannedExperiment
    reason: str
    run: RunInfo | None = None
    predicted_score: float | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """What follows for a search: an experiment, or its end; neither: another has to be measured
    before, or no executor that is present can run it, for this `reason`.
    """

    proposal: PlannedProposal | None = None
    stop_reason: StopReason | None = None
    reason: str = ""


def ask(snapshot: TaskSnapshot, installation: Installation) -> Question | None:
    """Return what to ask of a task's history; None for a grid."""
    task, goals = snapshot.task, snapshot.task.file.optimization.goals
    search = make_search(snapshot.file, default_seed=task.task_id.int, prior=task.prior)
    if search is None:
        return None
    past = [
        run
        for run in with_settings_compared(snapshot.history or ())
        if run.run.role in SEARCH_ROLES
    ]
    past += _find_warm(snapshot, task)
    return Question(
        file=snapshot.file,
        search=search,
        trials=trials_of(goals, search.space, past),
        offers=installation.offers,
        lost=frozenset(find_lost_engines(task, snapshot.history or ())),
    )


def answer(
    question: Question, task: Task, installation: Installation, planner: TaskPlanner | None = None
) -> Answer:
    """Return what follows. `planner` is the task's, where it was made before."""
    try:
        planner = planner or _make_planner(question.file, task, installation)
    except RefusedError as error:
        return Answer(reason=str(error))  # no executor present knows the engine
    is_possible = planner.is_possible

    def is_left(point: Point) -> bool:
        return point.variant not in question.lost and is_possible(point)

    step = propose(question.search, question.trials, is_left)
    if isinstance(step, StopReason):
        return Answer(stop_reason=step)
    if not isinstance(step, Proposal):
        return Answer()
    planned, _, _ = planner.plan_experiment(step.ordinal, step.point)
    run = None
    if step.divisor > 1:
        run = RunInfo(role=RunRole.SCREEN, request_divisor=step.divisor)
    return Answer(
        proposal=PlannedProposal(
            planned=fit_request(planned, task.largest_gpu_mb),
            reason=step.reason,
            run=run,
            predicted_score=(
                predict_score(task.prior, step.point) if task.prior is not None else None
            ),
        )
    )


def _make_planner(file: TaskFile, task: Task, installation: Installation) -> TaskPlanner:
    gpus, _ = keep_priced_gpus(file.gpus, file.optimization.max_cost, task.prices)
    file = replace(file, gpus=gpus)
    check_task(file)
    return make_task_planner(file, installation)


def _find_warm(snapshot: TaskSnapshot, task: Task) -> list[RunRecord]:
    """Return what past tasks measured, while the task runs on the GPU model that was measured."""
    if task.warm is None or snapshot.gpu_model not in {None, task.warm.gpu_model}:
        return []
    return past_of(task.warm)
