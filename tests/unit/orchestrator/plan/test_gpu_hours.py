"""How many GPU-hours a plan may take."""

from typing import Any

import pytest

from services.orchestrator.domain.plan.gpu_hours import gpu_hours_at_most
from services.orchestrator.domain.search.trust import MAX_CHECKS
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_plan

HOUR = {"timeout_per_iteration": 3600}


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"parallel_config": {"tp": [1, 2]}, "optimization": HOUR}, 3.0, id="a grid"),
        pytest.param(
            {"parallel_config": {"tp": 4}, "optimization": {**HOUR, "max_gpu_hours": 1.5}},
            1.5,
            id="the budget",
        ),
        pytest.param(
            {
                "parallel_config": {"tp": [1, 2]},
                "parameters": {"slots": [1, 2]},
                "optimization": {**HOUR, "strategy": "random", "max_iterations": 3},
            },
            6.0,
            id="of a search each as its largest",
        ),
        pytest.param({"gpus": {"shares": 0.25}, "optimization": HOUR}, 0.25, id="a share"),
        pytest.param({"optimization": {"timeout_per_iteration": 360}}, 0.1, id="minutes"),
        pytest.param({"optimization": {**HOUR, "trust": True}}, 1.0 + MAX_CHECKS, id="trust"),
    ],
)
def test_gpu_hours_bound_every_experiment(fields: dict[str, Any], want: float) -> None:
    task = make_file(**fields)

    assert gpu_hours_at_most(task, make_plan(task, OFFERS)) == pytest.approx(want)
