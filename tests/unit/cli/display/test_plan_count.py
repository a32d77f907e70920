"""How many experiments `validate` announces."""

from typing import Any

import pytest

from schemas.base import MAX_INTEGER
from schemas.orchestrator.views import TaskPlan
from schemas.task.objectives import Objective
from schemas.task.strategies import Strategy
from schemas.task.task_file import DeploymentMode
from services.cli.display.tables import plan_count_text


@pytest.mark.parametrize(
    ("strategy", "plan", "text"),
    [
        (Strategy.BAYESIAN, {"total": 32, "experiments_at_most": 8}, "up to 8 experiments of 32"),
        (
            Strategy.RANDOM,
            {"total": MAX_INTEGER, "experiments_at_most": 50},
            "up to 50 experiments",
        ),
        (
            Strategy.GRID_SEARCH,
            {"total": 8, "experiments_at_most": 6, "cut": 2},
            "6 experiments of 8, 2 left out",
        ),
    ],
)
def test_plan_says_maximum_of_experiments(
    strategy: Strategy, plan: dict[str, Any], text: str
) -> None:
    view = TaskPlan(
        mode=DeploymentMode.PROCESS,
        strategy=strategy,
        objective=Objective.MINIMIZE_LATENCY,
        experiments=(),
        **{"cut": 0, **plan},
    )

    assert plan_count_text(view) == text
