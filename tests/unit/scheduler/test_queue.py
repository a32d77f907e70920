"""One pass over the queue: order, backfill, rejections, time-outs, and what always holds."""

from datetime import timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from schemas.gpu_request import GpuRequest, Placement, ReasonCode
from schemas.telemetry import HealthState
from services.scheduler.domain.explain import blocking_reasons
from services.scheduler.domain.fleet import Device, Fleet, ReadingState
from services.scheduler.domain.placement import Look, place
from services.scheduler.domain.queue import (
    Grant,
    QueuedRequest,
    Rejection,
    TimeOut,
    Wait,
    decide,
    in_order,
)
from tests.unit.scheduler.builders import NOW, make_device, make_queued


def two_nodes() -> Fleet:
    return Fleet.of(
        [make_device(1), make_device(2), make_device(3, node_id="beta", name="NVIDIA L4")]
    )


def test_requests_are_granted_in_order_of_arrival_until_devices_run_out() -> None:
    fleet = Fleet.of([make_device(1), make_device(2)])

    outcomes = decide(fleet, [make_queued(n) for n in (3, 1, 2)], NOW)

    assert [type(outcome) for outcome in outcomes] == [Grant, Grant, Wait]
    assert [outcome.reservation_id.int for outcome in outcomes] == [1, 2, 3]
    waits = outcomes[2]
    assert isinstance(waits, Wait)
    assert waits.position == 1
    assert {reason.code for reason in waits.reasons} == {
        ReasonCode.HELD,
        ReasonCode.TOO_FEW_DEVICES,
    }


def test_a_higher_priority_goes_first_whenever_it_came() -> None:
    queue = [make_queued(1), make_queued(2, GpuRequest(priority=10))]

    assert [entry.arrival for entry in in_order(queue)] == [2, 1]


def test_a_later_request_never_takes_what_the_head_could_use() -> None:
    fleet = two_nodes().holding(frozenset({1}), "alpha", UUID(int=99))
    queue = [make_queued(1, GpuRequest(gpus=2)), make_queued(2), make_queued(3)]

    head, second, third = decide(fleet, queue, NOW)

    assert isinstance(head, Wait)
    assert isinstance(second, Grant)
    assert second.placed.node_id == "beta"
    assert isinstance(third, Wait)
    codes = {(reason.code, reason.device_uuid) for reason in third.reasons}
    assert (ReasonCode.BEHIND_IN_QUEUE, "GPU-2") in codes


def test_devices_that_the_head_does_not_select_are_free_for_others() -> None:
    fleet = Fleet.of([make_device(1, holder=UUID(int=99)), make_device(2)])
    queue = [make_queued(1, GpuRequest(device_uuids=("GPU-1",))), make_queued(2)]

    head, other = decide(fleet, queue, NOW)

    assert isinstance(head, Wait)
    assert isinstance(other, Grant)


def test_what_can_never_fit_is_rejected_and_keeps_nothing_from_others() -> None:
    queue = [make_queued(1, GpuRequest(gpus=3)), make_queued(2, GpuRequest(gpus=2))]

    rejected, granted = decide(two_nodes(), queue, NOW)

    assert isinstance(rejected, Rejection)
    assert rejected.reasons[0].code is ReasonCode.EXCEEDS_LARGEST_NODE
    assert isinstance(granted, Grant)


def test_an_empty_fleet_rejects_only_once_it_is_settled() -> None:
    (settled,) = decide(Fleet.of([]), [make_queued(1)], NOW)
    (early,) = decide(Fleet.of([], settled=False), [make_queued(1)], NOW)

    assert isinstance(settled, Rejection)
    assert isinstance(early, Wait)
    assert [reason.code for reason in early.reasons] == [ReasonCode.NO_GPUS]


def test_a_request_whose_time_is_up_ends_with_the_reasons_of_the_last_look() -> None:
    fleet = Fleet.of([make_device(1, holder=UUID(int=99))])

    (outcome,) = decide(fleet, [make_queued(1, wait_deadline_at=NOW)], NOW)

    assert isinstance(outcome, TimeOut)
    assert outcome.reasons[0].code is ReasonCode.HELD


NODES = ("alpha", "beta")


@st.composite
def devices(draw: st.DrawFn, number: int) -> Device:
    return make_device(
        number,
        node_id=draw(st.sampled_from(NODES)),
        name=draw(st.sampled_from(["NVIDIA H100", "NVIDIA L4"])),
        used=draw(st.sampled_from([None, 0.0, 40.0, 90.0])),
        free_mb=draw(st.sampled_from([None, 0, 45_000, 60_000, 80_000])),
        holder=draw(st.sampled_from([None, None, UUID(int=999)])),
        cordoned=draw(st.sampled_from([False, False, True])),
        health=draw(st.sampled_from([HealthState.OK, HealthState.OK, HealthState.LOST])),
        reading_state=draw(st.sampled_from([ReadingState.FRESH, *ReadingState])),
    )


REQUESTS = st.builds(
    GpuRequest,
    gpus=st.integers(1, 4),
    min_memory_mb=st.sampled_from([None, 0, 50_000, 90_000]),
    node_ids=st.sampled_from([(), ("alpha",)]),
    gpu_models=st.sampled_from([(), ("L4",)]),
    balanced_memory=st.booleans(),
    placement=st.sampled_from(list(Placement)),
    priority=st.integers(-1, 1),
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    count = draw(st.integers(0, 8))
    return Fleet.of([draw(devices(number)) for number in range(count)], settled=draw(st.booleans()))


@st.composite
def queues(draw: st.DrawFn) -> list[QueuedRequest]:
    requests = draw(st.lists(REQUESTS, max_size=6))
    return [
        make_queued(
            n,
            request,
            wait_deadline_at=NOW + timedelta(seconds=draw(st.sampled_from([-1, 1, 1]))),
        )
        for n, request in enumerate(requests, start=1)
    ]


@given(fleets(), queues())
def test_capacity_is_never_exceeded_and_every_request_has_one_outcome(
    fleet: Fleet, queue: list[QueuedRequest]
) -> None:
    outcomes = decide(fleet, queue, NOW)

    assert sorted(o.reservation_id for o in outcomes) == sorted(q.reservation_id for q in queue)
    known = {device.number: device for group in fleet.nodes.values() for device in group}
    asked = {entry.reservation_id: entry.request for entry in queue}
    taken: set[int] = set()
    for outcome in outcomes:
        if isinstance(outcome, Grant):
            numbers = outcome.placed.numbers
            assert len(numbers) == asked[outcome.reservation_id].gpus
            assert not numbers & taken
            taken |= numbers
            for number in numbers:
                device = known[number]
                assert device.node_id == outcome.placed.node_id
                assert device.holder is None
                assert not device.cordoned
                assert device.health is HealthState.OK
                assert device.reading_state is ReadingState.FRESH


@given(fleets(), queues())
def test_an_explanation_is_empty_exactly_for_what_is_granted(
    fleet: Fleet, queue: list[QueuedRequest]
) -> None:
    for outcome in decide(fleet, queue, NOW):
        if isinstance(outcome, Wait | Rejection):
            assert outcome.reasons


@given(fleets(), REQUESTS)
def test_reasons_are_empty_exactly_if_there_is_a_place(fleet: Fleet, request: GpuRequest) -> None:
    look = Look(fleet=fleet)

    assert (blocking_reasons(look, request) == ()) == (place(look, request) is not None)


@given(fleets(), queues())
def test_the_head_is_served_as_if_nobody_stood_behind_it(
    fleet: Fleet, queue: list[QueuedRequest]
) -> None:
    """Backfill never delays the head: devices that it could ever use stay where they were."""
    ordered = in_order(queue)
    outcomes = decide(fleet, ordered, NOW)
    for position, outcome in enumerate(outcomes):
        alone = decide(fleet, ordered[: position + 1], NOW)[position]
        assert type(alone) is type(outcome)
        if isinstance(outcome, Grant) and isinstance(alone, Grant):
            assert outcome.placed == alone.placed
    head = next((o for o in outcomes if isinstance(o, Wait)), None)
    if head is not None:
        usable = {
            device.number
            for group in fleet.nodes.values()
            if sum(_matches(device, head.request) for device in group) >= head.request.gpus
            for device in group
            if _matches(device, head.request)
        }
        for outcome in outcomes[outcomes.index(head) :]:
            if isinstance(outcome, Grant):
                assert not outcome.placed.numbers & usable


def _matches(device: Device, request: GpuRequest) -> bool:
    """Written anew, so that the property does not lean on what it checks."""
    return (
        (not request.node_ids or device.node_id in request.node_ids)
        and (not request.gpu_models or any(m in device.name for m in request.gpu_models))
        and (request.min_memory_mb or 0) <= 80_000
    )
