"""Several objectives in one task: what they mean for its search, and which of them are refused."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.task_file import OptimizationSpec
from services.orchestrator.domain.plan.expansion import find_axes
from services.orchestrator.domain.search.history import RunRecord, trials_of
from services.orchestrator.domain.search.space import space_of
from shared.benchmarks.verdicts.ranking import Scored
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_plan

SPACE = space_of(find_axes(make_file(parameters={"slots": [1, 2, 4]})))


def past_of(ordinal: int, latency: float, throughput: float) -> RunRecord:
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters=SPACE.point((ordinal - 1,)).show(),
        scored=Scored(
            experiment_id=UUID(int=ordinal),
            ordinal=ordinal,
            score=latency,
            goals=(latency, -throughput),
        ),
    )


def test_configurations_rank_by_front_then_objective() -> None:
    """The third is the best of all in throughput; the second is beaten by the first in both."""
    goals = (Objective.MINIMIZE_LATENCY, Objective.MAXIMIZE_THROUGHPUT)
    past = [past_of(1, 1.0, 10.0), past_of(2, 2.0, 5.0), past_of(3, 3.0, 30.0)]

    assert [trial.standing for trial in trials_of(goals, SPACE, past)] == [0, 2, 1]
    assert [trial.standing for trial in trials_of(goals[:1], SPACE, past)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"objectives": ["minimize_ttft", "minimize_ttft"]}, "each of `objectives` once"),
        (
            {"objectives": ["minimize_ttft", "minimize_tpot"], "objective": "minimize_tpot"},
            "the first of `objectives`",
        ),
        ({"objectives": ["minimize_ttft", "maximize_goodput"]}, "constraints that bound a time"),
        (
            {"objective": "maximize_goodput", "constraints": "error_rate<1%"},
            "constraints that bound a time",
        ),
        (
            {"objective": "maximize_goodput", "constraints": "ttft:p99>1ms"},
            "constraints that bound a time",
        ),
        ({"objectives": ["minimize_ttft", "maximize_load"]}, "'maximize_load' as the first"),
    ],
)
def test_objectives_that_mean_nothing_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises((RefusedError, msgspec.ValidationError), match=said):
        make_plan(make_file(optimization=given), OFFERS)


def test_first_objective_names_the_best() -> None:
    spec = make_file(optimization={"objectives": ["minimize_cost", "minimize_ttft"]}).optimization

    assert spec.objective is Objective.MINIMIZE_COST
    assert spec.goals == (Objective.MINIMIZE_COST, Objective.MINIMIZE_TTFT)
    assert msgspec.convert(msgspec.to_builtins(spec), OptimizationSpec) == spec
    assert make_file().optimization.goals == (Objective.MINIMIZE_LATENCY,)
