"""What a monitoring sums up, and what becomes of many of them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import ErrorCode
from schemas.telemetry.monitoring import MonitoringView, SampledSpread, Spread, StartMonitoring
from schemas.telemetry.readings import GpuReading, GpuSampled, Source
from services.telemetry.domain.monitoring_sessions import (
    MAX_RUNNING,
    MAX_STORED,
    STORED_SECONDS,
    MonitoringSessions,
)
from shared.errors import RefusedError
from shared.ids import new_id

WALL = datetime(2026, 1, 1, tzinfo=UTC)


def make_sample(*gpus: GpuReading, interval_seconds: float = 1.0) -> GpuSampled:
    return GpuSampled(
        node_id="node-a",
        boot_id=UUID(int=1),
        sequence=1,
        observed_at=WALL,
        interval_seconds=interval_seconds,
        source=Source.NVML,
        gpus=gpus or (make_reading(),),
    )


def make_reading(**overrides: Any) -> GpuReading:
    fields: dict[str, Any] = {
        "uuid": "GPU-0",
        "index": 0,
        "name": "H200",
        "utilization_percent": 50.0,
        "memory_total_mb": 1000,
        "memory_used_mb": 250,
    }
    return GpuReading(**{**fields, **overrides})


def make_query(**overrides: Any) -> StartMonitoring:
    return StartMonitoring(**{"node_id": "node-a", "monitoring_id": new_id(), **overrides})


def watched(times: list[float], end: float, **asked: Any) -> MonitoringView:
    """A monitoring from second 0 to `end`, of samples at these times."""
    sessions, query = MonitoringSessions(), make_query(**asked)
    sessions.start(query, 0.0, WALL)
    for at in times:
        sessions.observe(make_sample(), at)
    return sessions.stop(query.monitoring_id, end).view(end)


def test_aggregate_has_the_required_shape() -> None:
    sessions, query = MonitoringSessions(), make_query()
    sessions.start(query, 10.0, WALL)
    sessions.observe(make_sample(make_reading(utilization_percent=20.0, power_limit_w=600)), 10.0)
    sessions.observe(make_sample(make_reading(utilization_percent=None, power_limit_w=450)), 11.0)
    sessions.observe(make_sample(make_reading(utilization_percent=60.0, power_limit_w=300)), 12.0)

    view = sessions.stop(query.monitoring_id, 12.5).view(99.0)

    stats = view.gpu_stats["0"]
    assert (view.monitoring_duration_seconds, view.sample_count, view.missed_count) == (2.5, 3, 0)
    assert not view.running
    assert stats.name == "H200"
    assert stats.utilization == SampledSpread(min=20.0, max=60.0, mean=40.0, samples=2)
    assert stats.memory_usage_percent == Spread(min=25.0, max=25.0, mean=25.0)
    assert stats.power_limit_w == Spread(min=300, max=600, mean=450.0)
    assert stats.temperature_c == Spread()


@pytest.mark.parametrize(
    ("times", "end", "asked", "counted"),
    [
        pytest.param([0.4, 1.4, 2.4], 3.0, {}, (3, 0), id="every tick"),
        pytest.param([0.4, 1.39, 2.41, 3.4], 3.5, {}, (4, 0), id="ticks that jitter"),
        pytest.param([0.4, 3.4], 3.5, {}, (2, 2), id="two ticks between that failed"),
        pytest.param([0.4], 3.6, {}, (1, 2), id="the last ticks failed, one may still come"),
        pytest.param([2.3], 2.5, {}, (1, 2), id="the first ticks failed"),
        pytest.param([], 3.0, {}, (0, 3), id="nothing was read"),
        pytest.param(
            [float(at) for at in range(11)], 10.5, {"interval_seconds": 5.0}, (3, 0), id="slower"
        ),
        pytest.param(
            [float(at) for at in range(14)],
            13.5,
            {"interval_seconds": 5.0},
            (3, 0),
            id="slower, the next tick not due",
        ),
        pytest.param([0.4, 0.7, 1.4, 2.4], 2.5, {}, (3, 0), id="a snapshot in between counts once"),
    ],
)
def test_ticks_and_missing_ones_are_counted(
    times: list[float], end: float, asked: dict[str, Any], counted: tuple[int, int]
) -> None:
    view = watched(times, end, **asked)

    assert (view.sample_count, view.missed_count) == counted


def test_monitoring_ends_and_is_kept_ten_minutes() -> None:
    sessions, query = MonitoringSessions(), make_query(max_seconds=5.0)
    sessions.start(query, 0.0, WALL)
    sessions.observe(make_sample(), 1.0)
    sessions.observe(make_sample(), 6.0)

    ended = sessions.stop(query.monitoring_id, 600.0).view(600.0)
    assert (ended.monitoring_duration_seconds, ended.sample_count) == (5.0, 1)
    assert sessions.stop(query.monitoring_id, 604.0).view(604.0) == ended

    with pytest.raises(RefusedError) as refused:
        sessions.stop(query.monitoring_id, 5.1 + STORED_SECONDS)
    assert refused.value.code is ErrorCode.NOT_FOUND


def test_a_monitoring_started_twice_is_the_same_one() -> None:
    sessions, query = MonitoringSessions(), make_query()
    sessions.start(query, 0.0, WALL)
    sessions.observe(make_sample(), 1.0)

    assert sessions.start(query, 2.0, WALL).view(2.0).sample_count == 1


def test_monitorings_are_bounded_running_and_ended() -> None:
    sessions = MonitoringSessions()
    running = [make_query() for _ in range(MAX_RUNNING)]
    for query in running:
        sessions.start(query, 0.0, WALL)
    with pytest.raises(RefusedError) as refused:
        sessions.start(make_query(), 0.0, WALL)
    assert refused.value.code is ErrorCode.CONFLICT

    for place in range(MAX_STORED):
        sessions.stop(running[-1].monitoring_id, float(place))
        running.append(make_query())
        sessions.start(running[-1], float(place), WALL)

    sessions.advance(float(MAX_STORED))
    with pytest.raises(RefusedError):
        sessions.stop(running[MAX_RUNNING - 1].monitoring_id, float(MAX_STORED))
    assert sessions.stop(running[-2].monitoring_id, float(MAX_STORED)).ended is not None
