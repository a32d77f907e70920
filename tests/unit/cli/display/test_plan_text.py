"""What a plan takes, as people read it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas.orchestrator.views import PlanCost, PlanStart
from services.cli.display.plan_text import forecast_lines
from tests.support.worlds.gateway_views import make_plan

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def lines(**fields: Any) -> list[str]:
    return list(forecast_lines(make_plan(**fields), NOW))


def test_hours_cost_and_start_are_told() -> None:
    cost = PlanCost(least=1.4, most=2.8, currency="EUR")

    assert lines(gpu_hours_at_most=0.6667, cost_at_most=cost, start=PlanStart(is_now=True)) == [
        ("GPU time: at most 0.667 GPU-hours, every experiment to its time limit within the budget"),
        "cost: at most 1.40 to 2.80 EUR",
        "start: now",
    ]


@pytest.mark.parametrize(
    ("start", "want"),
    [
        (
            PlanStart(is_now=False, expected_at=NOW + timedelta(minutes=12), message="held by a"),
            "start: in about 12m: held by a",
        ),
        (PlanStart(is_now=False, message="held by a"), "start: unknown: held by a"),
    ],
)
def test_what_waits_is_told_with_its_reason(start: PlanStart, want: str) -> None:
    found = lines(gpu_hours_at_most=1.0, start=start)

    assert found[1].startswith("cost: unknown, GPUSTEWARD_RESULTS_GPU_HOUR_PRICES")
    assert found[2] == want


def test_a_plan_that_cannot_run_here_has_no_start() -> None:
    assert len(lines(gpu_hours_at_most=1.0)) == 1
    assert lines() == []
