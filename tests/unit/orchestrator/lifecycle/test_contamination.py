"""What makes a measurement count for nothing."""

from typing import Any

import msgspec
import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState
from schemas.results.measurements import CoTenant, GpuDetails, GpuMonitoring
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.trust import ScoreError
from services.orchestrator.domain.lifecycle import running
from services.orchestrator.domain.lifecycle.contamination import find_throttling, of_gpus
from tests.support.worlds.orchestrator_records import (
    NOW,
    make_experiment,
    make_granted,
    make_task,
)

QUIET = GpuMonitoring(
    monitoring_duration_seconds=100.0,
    sample_count=100,
    gpu_stats={},
    coverage_percent=100.0,
    energy_wh=None,
    phase="measuring",
    simulated=True,
    trusted=True,
)


def monitored(**details: Any) -> GpuMonitoring:
    gpu = GpuDetails(coverage_percent=100.0, longest_gap_seconds=1.0, **details)
    return msgspec.structs.replace(QUIET, gpu_details={"0": gpu})


@pytest.mark.parametrize(
    ("monitoring", "says"),
    [
        (QUIET, ()),
        (monitored(throttle_reasons={"hw_thermal": 9.0}), ()),
        (monitored(xids=(79, 48)), ("XID 79, 48",)),
        (
            monitored(co_tenants=(CoTenant(seconds=50.0, name="python"), CoTenant(seconds=1.0))),
            ("python had memory on it for 50 s",),
        ),
        (monitored(co_tenants=(CoTenant(seconds=50.0),)), ("another reservation had memory",)),
    ],
)
def test_gpus_that_were_disturbed(monitoring: GpuMonitoring, says: tuple[str, ...]) -> None:
    found = of_gpus(monitoring, is_shared=False)

    assert len(found) == len(says)
    assert all(
        each.startswith("GPU 0: ") and say in each for each, say in zip(found, says, strict=True)
    )


def test_tenants_of_a_shared_gpu_are_no_disturbance() -> None:
    assert of_gpus(monitored(co_tenants=(CoTenant(seconds=50.0),)), is_shared=True) == ()


def test_too_few_samples_use_the_results_words() -> None:
    thin = msgspec.structs.replace(QUIET, trusted=False, untrusted_because="40 % of samples")

    assert of_gpus(thin, is_shared=False) == ("40 % of samples",)
    assert of_gpus(msgspec.structs.replace(QUIET, trusted=None), is_shared=False) == ()


@pytest.mark.parametrize(
    ("reasons", "says"),
    [
        ({"hw_thermal": 9.0}, ("GPU 0: throttled by hw_thermal for 9 s",)),
        ({"hw_thermal": 4.0, "sw_power_cap": 99.0}, ()),
    ],
)
def test_throttled_gpus_leave_a_better_score_open(
    reasons: dict[str, float], says: tuple[str, ...]
) -> None:
    throttled = monitored(throttle_reasons=reasons)

    decision = running.on_summary(
        make_task(),
        make_experiment(ExperimentState.RUNNING),
        make_granted(),
        BenchmarkMetrics(),
        NOW,
        None,
        throttled,
    )

    assert find_throttling(throttled) == says
    assert decision is not None
    run = decision.experiment.run
    assert run.contaminated == ()
    assert run.error == (
        ScoreError(better_share=None, because=says, may_meet=True) if says else None
    )


@pytest.mark.parametrize(
    ("request_", "is_disturbed"),
    [
        pytest.param(GpuRequest(), True, id="a whole GPU"),
        pytest.param(GpuRequest(shares=0.5), False, id="a part of one"),
    ],
)
def test_tenants_on_a_whole_gpu_are_a_disturbance(request_: GpuRequest, is_disturbed: bool) -> None:
    experiment = make_experiment(ExperimentState.RUNNING, request=request_)
    beside = monitored(co_tenants=(CoTenant(seconds=50.0),))

    decision = running.on_summary(
        make_task(), experiment, make_granted(), BenchmarkMetrics(), NOW, None, beside
    )

    assert decision is not None
    assert bool(decision.experiment.run.contaminated) is is_disturbed


def test_locked_clock_leaves_no_score_open() -> None:
    slowed = monitored(throttle_reasons={"applications_clocks_setting": 9.0})
    by_others = ("GPU 0: throttled by applications_clocks_setting for 9 s",)

    assert find_throttling(slowed) == by_others
    assert find_throttling(slowed, is_clock_locked=True) == ()
