"""When a request is expected to start, from leases and durations."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import Reason
from services.scheduler.domain.advice.expected_start import forecast_start
from services.scheduler.domain.model.fleet import Device, ReadingState
from services.scheduler.domain.model.inputs import (
    FAR,
    DeviceSeen,
    FleetComplete,
    Lease,
    LeaseHeld,
    QueuedRequest,
    RequestQueued,
)
from services.scheduler.domain.placement.placement import PlacementContext
from services.scheduler.domain.placement.reasons import blocking_reasons
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from services.scheduler.domain.queue.scheduling_cycle import SchedulingCycle
from tests.unit.scheduler.builders import NOW, make_device, make_queued


def make_engine(*devices: Device) -> DecisionEngine:
    engine = DecisionEngine()
    engine.apply(FleetComplete(complete=True), *(DeviceSeen(device=device) for device in devices))
    return engine


def hold(
    engine: DecisionEngine, *numbers: int, ends_in: float | None = None, **request: Any
) -> None:
    """A lease of these devices that is expected to end in so many seconds."""
    engine.apply(
        LeaseHeld(
            lease=Lease(
                reservation_id=UUID(int=100 + numbers[0]),
                request=GpuRequest(gpus=len(numbers), **request),
                numbers=numbers,
                granted_at=NOW - timedelta(hours=1),
                expected_end_at=after(ends_in) if ends_in is not None else None,
            )
        )
    )


def wait(engine: DecisionEngine, number: int, **changes: Any) -> QueuedRequest:
    deadline = changes.pop("wait_deadline_at", FAR)
    entry = make_queued(number, GpuRequest(**changes), wait_deadline_at=deadline)
    engine.apply(RequestQueued(entry=entry))
    return entry


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def start_at(engine: DecisionEngine, entry: QueuedRequest, **given: int) -> datetime | None:
    start = forecast_start(engine, entry, NOW, **given)
    return start.at if start is not None else None


def busy(number: int, **changes: Any) -> Device:
    """What a held device shows is its holder's use."""
    return make_device(number, used=100.0, free_mb=0, **changes)


def test_start_is_when_enough_leases_have_ended() -> None:
    engine = make_engine(busy(1), busy(2), busy(3))
    hold(engine, 1, ends_in=60)
    hold(engine, 2, ends_in=20)
    hold(engine, 3, ends_in=40)

    entry = wait(engine, 1, gpus=2)

    assert start_at(engine, entry) == after(40)
    assert engine.queue_length == 1


def test_own_wait_limit_does_not_change_forecast() -> None:
    engine = make_engine(busy(1))
    hold(engine, 1, ends_in=600)

    entry = wait(engine, 1, wait_deadline_at=after(300))

    assert start_at(engine, entry) == after(600)


def test_earlier_requests_run_as_long_as_they_say() -> None:
    engine = make_engine(busy(1))
    hold(engine, 1, ends_in=60)
    wait(engine, 1, expected_duration_seconds=600.0)

    entry = wait(engine, 2)

    assert start_at(engine, entry) == after(660)


def test_requests_that_time_out_are_not_awaited() -> None:
    engine = make_engine(busy(1))
    hold(engine, 1, ends_in=60)
    wait(engine, 1, wait_deadline_at=after(30))

    entry = wait(engine, 2)

    assert start_at(engine, entry) == after(60)


@pytest.mark.parametrize("ends_in", [None, 0, -5], ids=["untold", "due now", "overdue"])
def test_lease_without_end_makes_start_unknown(ends_in: float | None) -> None:
    engine = make_engine(busy(1))
    hold(engine, 1, ends_in=ends_in)

    assert start_at(engine, wait(engine, 1)) is None


def test_irrelevant_endless_lease_is_ignored() -> None:
    engine = make_engine(busy(1), busy(2, node_id="beta"))
    hold(engine, 1)
    hold(engine, 2, ends_in=5)

    assert start_at(engine, wait(engine, 1)) == after(5)


def test_start_is_on_nodes_freed_first() -> None:
    nodes = ("alpha", "beta", "gamma")
    engine = make_engine(*(busy(n, node_id=node) for n, node in enumerate(nodes, start=1)))
    for number, ends_in in ((1, 30), (2, 10), (3, 20)):
        hold(engine, number, ends_in=ends_in)

    one = forecast_start(engine, wait(engine, 1), NOW)
    gang = forecast_start(engine, wait(engine, 2, nodes=2), NOW)

    assert one is not None
    assert one.node_ids == ("beta",)
    assert gang is not None
    assert (gang.at, set(gang.node_ids)) == (after(30), {"alpha", "gamma"})


def test_earlier_request_without_end_never_ends() -> None:
    engine = make_engine(busy(1))
    hold(engine, 1, ends_in=60)
    wait(engine, 1)

    assert start_at(engine, wait(engine, 2)) is None


@pytest.mark.parametrize(
    "changes",
    [{"cordoned": True}, {"foreign_pids": (4,)}, {"quarantined": True, "holder": UUID(int=101)}],
)
def test_what_time_does_not_heal_is_not_waited_for(changes: dict[str, Any]) -> None:
    engine = make_engine(busy(1, **changes))
    hold(engine, 1, ends_in=60)

    assert start_at(engine, wait(engine, 1)) is None


def test_what_could_start_now_starts_now() -> None:
    engine = make_engine(make_device(1, reading_state=ReadingState.AWAITING))
    arriving_request = make_queued(7, GpuRequest())

    assert start_at(engine, arriving_request) == NOW
    assert engine.queue_length == 0


def test_many_lease_ends_are_grouped() -> None:
    engine = make_engine(*(busy(n) for n in range(1, 41)))
    for number in range(1, 41):
        hold(engine, number, ends_in=number)
    near, far = make_queued(1, GpuRequest(gpus=8)), make_queued(2, GpuRequest(gpus=30))

    assert start_at(engine, near) == after(8)
    roughly = start_at(engine, far)
    assert roughly is not None
    assert after(30) <= roughly <= after(33)
    assert start_at(engine, far, moments=25) == roughly, "of 30 ends"
    assert start_at(engine, far, moments=9) is None


def test_hopeless_start_is_known_without_waiting() -> None:
    engine = make_engine(busy(1), busy(2))
    hold(engine, 1, ends_in=60)
    hold(engine, 2)

    assert start_at(engine, wait(engine, 1, gpus=2)) is None


def test_device_is_unused_after_its_lease() -> None:
    engine = make_engine(busy(1))
    hold(engine, 1, ends_in=60)

    assert start_at(engine, wait(engine, 1, max_utilization_percent=0.0)) == after(60)


def test_time_outs_on_the_way_cost_no_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Working out why each of 2,000 timed out took seconds, and was thrown away."""
    engine = make_engine(*(busy(number) for number in range(1, 9)))
    for number in range(1, 9):
        hold(engine, number, ends_in=60.0 * number, expected_duration_seconds=60.0)
    for number in range(1, 41):
        seconds = 600.0 + 7 * number
        wait(engine, number, expected_duration_seconds=seconds, wait_deadline_at=after(100))
    last = wait(engine, 41, expected_duration_seconds=60.0)
    explained: list[GpuRequest] = []

    def reasons(context: PlacementContext, request: GpuRequest) -> tuple[Reason, ...]:
        explained.append(request)
        return blocking_reasons(context, request)

    monkeypatch.setattr(f"{SchedulingCycle.__module__}.blocking_reasons", reasons)

    last_at = start_at(engine, last)

    assert last_at is not None
    assert last_at > after(100)
    assert explained == []
    assert engine.queue_length == 41
