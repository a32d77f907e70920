"""Which experiment of a task is its best so far."""

from typing import Any
from uuid import UUID

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.task_file import StopReason
from schemas.task.trust import RunInfo, RunRole, RunSetting, TrustVerdict
from services.orchestrator.domain.progress.leader import find_best
from services.orchestrator.domain.records import Task
from services.orchestrator.domain.search.history import RunRecord
from shared.benchmarks.verdicts.ranking import Scored
from tests.support.worlds.orchestrator_records import make_task


def make_run(
    ordinal: int,
    score: float | None,
    *,
    excess: float = 0.0,
    run: RunInfo | None = None,
    state: ExperimentState = ExperimentState.SUCCEEDED,
) -> RunRecord:
    return RunRecord(
        ordinal=ordinal,
        state=state,
        parameters={"slots": ordinal},
        scored=Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=score, excess=excess),
        run=run or RunInfo(),
    )


def task(**fields: Any) -> Task:
    return make_task(stop_reason=StopReason.SPACE_EXHAUSTED, **fields)


def test_smallest_latency_is_best() -> None:
    assert find_best(task(), [make_run(1, 2.0), make_run(2, 1.0)]) == UUID(int=2)


def test_there_is_no_best_before_a_score() -> None:
    assert find_best(task(), []) is None
    assert find_best(task(), [make_run(1, None)]) is None


def test_missed_constraints_are_never_best() -> None:
    assert find_best(task(), [make_run(1, 1.0, excess=0.2)]) is None


def test_only_whole_runs_of_the_search_compete() -> None:
    repeat = RunInfo(role=RunRole.REPEAT, repeats=1)
    screen = RunInfo(role=RunRole.SCREEN, request_divisor=3)
    runs = [make_run(1, 2.0), make_run(2, 1.0, run=repeat), make_run(3, 0.5, run=screen)]

    assert find_best(task(), runs) == UUID(int=1)


def test_unfinished_runs_do_not_compete() -> None:
    runs = [make_run(1, 2.0), make_run(2, 1.0, state=ExperimentState.RUNNING)]

    assert find_best(task(), runs) == UUID(int=1)


def test_verdict_names_the_best_by_its_first_run() -> None:
    runs = [make_run(1, 2.0), make_run(2, 1.0)]

    assert find_best(task(trust=TrustVerdict(winner=1)), runs) == UUID(int=1)
    assert find_best(task(trust=TrustVerdict()), runs) is None


def test_run_on_an_unusual_setting_is_not_best() -> None:
    usual, other = (RunInfo(setting=RunSetting(gpu_models=(name,))) for name in ("H100", "A100"))
    runs = [make_run(1, 2.0, run=usual), make_run(2, 3.0, run=usual), make_run(3, 1.0, run=other)]

    assert find_best(task(), runs) == UUID(int=1)
