"""What a planned task costs at most."""

from collections.abc import Sequence

import pytest

from schemas.orchestrator.views import PlanCost
from schemas.results.prices import GpuPrices
from services.gateway.domain.plan_forecast import cost_at_most

PRICES = GpuPrices(hourly={"h200": 3.5, "a100": 1.8}, currency="EUR")


@pytest.mark.parametrize(
    ("models", "max_cost", "want"),
    [
        pytest.param([], None, (3.6, 7.0), id="any model"),
        pytest.param(["NVIDIA H200"], None, (7.0, 7.0), id="one model"),
        pytest.param(["NVIDIA H200", "a100"], None, (3.6, 7.0), id="two models"),
        pytest.param(["NVIDIA H200"], 5.0, (5.0, 5.0), id="the budget"),
        pytest.param(["NVIDIA H200", "T4"], None, None, id="a model without a price"),
    ],
)
def test_cost_spans_cheapest_to_dearest_model(
    models: Sequence[str], max_cost: float | None, want: tuple[float, float] | None
) -> None:
    found = cost_at_most(2.0, models, PRICES, max_cost)

    expected = None
    if want is not None:
        expected = PlanCost(least=want[0], most=want[1], currency="EUR")
    assert found == expected


def test_without_prices_no_cost_is_known() -> None:
    assert cost_at_most(2.0, [], GpuPrices(hourly={}, currency="EUR"), None) is None
