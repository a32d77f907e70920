"""What a task may spend on GPUs."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.results.prices import GpuPrices
from schemas.task.task_file import DeploymentMode, GpuPreferences, OptimizationSpec, StopReason
from services.orchestrator.domain.lifecycle.budget import (
    AttemptTimes,
    HeldGpus,
    cost_of,
    find_cost,
    keep_priced_gpus,
    refuse_cost_of_clusters,
    seconds_left,
    spent_budget,
)
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import make_file

PRICES = GpuPrices(hourly={"h200": 4.0, "h200 nvl": 3.0, "a100": 2.0}, currency="EUR")


def held(gpu_seconds: float, *models: str) -> HeldGpus:
    return HeldGpus(models=models, gpu_seconds=gpu_seconds)


def test_held_gpus_cost_the_price_of_their_model() -> None:
    assert cost_of([held(3600, "NVIDIA H200")], PRICES.hourly) == 4.0
    assert cost_of([held(3600, "NVIDIA H200-NVL")], PRICES.hourly) == 3.0
    assert cost_of([held(7200, "NVIDIA H200", "NVIDIA A100")], PRICES.hourly) == 6.0
    assert cost_of([held(1800, "NVIDIA A100"), held(900, "NVIDIA H200")], PRICES.hourly) == 2.0


def test_what_nobody_has_priced_is_never_free() -> None:
    assert cost_of([held(3600, "NVIDIA L4")], PRICES.hourly) == 4.0
    assert cost_of([held(3600)], PRICES.hourly) == 4.0


@pytest.mark.parametrize(
    ("bounds", "stops"),
    [
        pytest.param({}, None, id="without a budget"),
        pytest.param({"max_cost": 4.01}, None, id="not yet"),
        pytest.param({"max_cost": 4.0}, StopReason.MAX_COST, id="money"),
        pytest.param({"max_gpu_hours": 1.01, "max_cost": 9.0}, None, id="neither yet"),
        pytest.param({"max_gpu_hours": 1.0, "max_cost": 1.0}, StopReason.MAX_GPU_HOURS, id="both"),
    ],
)
def test_the_budget_that_is_used_up_is_named(
    bounds: dict[str, Any], stops: StopReason | None
) -> None:
    found = spent_budget(OptimizationSpec(**bounds), PRICES, [held(3600, "NVIDIA H200")])

    assert (found[0] if found else None) is stops


@pytest.mark.parametrize(
    ("models", "taken", "note"),
    [
        pytest.param(
            [],
            ("h200", "h200 nvl", "a100"),
            "max_cost: 12 EUR are 3 to 6 GPU-hours of h200, h200 nvl, a100; GPUs without a price "
            "are not taken",
            id="any that has a price",
        ),
        pytest.param(
            ["A100"],
            ("A100",),
            "max_cost: 12 EUR are 6 GPU-hours of A100; GPUs without a price are not taken",
            id="those that the task names",
        ),
        pytest.param(
            ["L4"],
            ("L4",),
            "max_cost: 12 EUR are any number of GPU-hours of L4; GPUs without a price are not "
            "taken",
            id="of no cost",
        ),
        pytest.param(
            ["A100", "L4"],
            ("A100", "L4"),
            "max_cost: 12 EUR are 6 to any number of GPU-hours of A100, L4; GPUs without a price "
            "are not taken",
            id="some of no cost",
        ),
    ],
)
def test_only_gpus_with_a_price_are_asked_for(
    models: list[str], taken: tuple[str, ...], note: str
) -> None:
    gpus = GpuPreferences(models=tuple(models))

    prices = replace(PRICES, hourly=PRICES.hourly | ({"l4": 0.0} if "L4" in models else {}))
    priced, notes = keep_priced_gpus(gpus, 12, prices)

    assert priced is not None
    assert (priced.models, notes) == (taken, (note,))


@pytest.mark.parametrize(("bounds", "prices"), [({}, None), ({}, PRICES), ({"max_cost": 1}, None)])
def test_any_gpu_may_be_taken_without_a_max_cost(
    bounds: dict[str, Any], prices: GpuPrices | None
) -> None:
    spec, gpus = make_file(optimization=bounds).optimization, GpuPreferences(models=("L4",))

    assert keep_priced_gpus(gpus, spec.max_cost, prices) == (gpus, ())
    assert spent_budget(spec, prices, [held(3600, "NVIDIA H200")]) is None


@pytest.mark.parametrize(
    ("prices", "gpus", "message"),
    [
        pytest.param(
            GpuPrices(hourly={}, currency="USD"),
            {},
            "expected a price of GPUs, GPUSTEWARD_RESULTS_GPU_HOUR_PRICES has none",
            id="no prices",
        ),
        pytest.param(
            PRICES,
            {"models": ["A100", "L4"]},
            "expected GPUs with a price, L4 has none in GPUSTEWARD_RESULTS_GPU_HOUR_PRICES "
            "(h200=4, h200 nvl=3, a100=2)",
            id="a model without",
        ),
    ],
)
def test_what_has_no_price_is_refused_by_name(
    prices: GpuPrices, gpus: dict[str, Any], message: str
) -> None:
    with pytest.raises(RefusedError) as refusal:
        keep_priced_gpus(make_file(gpus=gpus).gpus, 1, prices)

    assert (refusal.value.path, str(refusal.value)) == ("$.optimization.max_cost", message)


def test_a_clusters_gpus_have_no_known_price() -> None:
    refuse_cost_of_clusters(OptimizationSpec(), DeploymentMode.OME)
    refuse_cost_of_clusters(OptimizationSpec(max_cost=1), DeploymentMode.PROCESS)

    with pytest.raises(RefusedError, match="expected no max_cost in mode 'ome'"):
        refuse_cost_of_clusters(OptimizationSpec(max_cost=1), DeploymentMode.OME)


def test_cost_is_unknown_if_a_gpu_has_no_price() -> None:
    priced = HeldGpus(models=("NVIDIA H100",), gpu_seconds=3600.0)
    in_a_cluster = HeldGpus(models=(), gpu_seconds=3600.0)

    assert find_cost([priced], {"h100": 3.5}) == 3.5
    assert find_cost([priced], {"a100": 2.0}) is None
    assert find_cost([priced, in_a_cluster], {"h100": 3.5}) is None
    assert find_cost([], {}) == 0.0


@pytest.mark.parametrize(
    ("mean", "running", "unstarted", "parallel", "want"),
    [
        pytest.param(None, (5.0,), 3, 1, None, id="nothing has ended yet"),
        pytest.param(60.0, (), 3, 1, 180.0, id="one after the other"),
        pytest.param(60.0, (20.0,), 2, 1, 160.0, id="with one under way"),
        pytest.param(60.0, (20.0, 50.0), 3, 2, 115.0, id="two at once"),
        pytest.param(60.0, (90.0,), 0, 4, 0.0, id="longer than the mean"),
        pytest.param(60.0, (0.0, 59.0), 0, 8, 60.0, id="the longest of the last ones"),
    ],
)
def test_time_left_is_by_the_mean_of_the_attempts(
    mean: float | None,
    running: tuple[float, ...],
    unstarted: int,
    parallel: int,
    want: float | None,
) -> None:
    times = AttemptTimes(mean_seconds=mean, running_seconds=running)

    assert seconds_left(times, unstarted, parallel) == want
