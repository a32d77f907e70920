"""Starting early in a gap, without ever delaying who waits ahead."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import ReasonCode
from services.scheduler.domain.model.fleet import Device, Node
from services.scheduler.domain.model.inputs import (
    DeviceSeen,
    LeaseEnded,
    RequestEnded,
    RequestQueued,
)
from services.scheduler.domain.placement.decisions import Grant
from services.scheduler.domain.queue import backfill
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import (
    NOW,
    hold,
    make_device,
    make_engine,
    make_queued,
    queue,
    reasons,
)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def granted(engine: DecisionEngine, now: datetime = NOW) -> set[UUID]:
    return {d.reservation_id for d in engine.decide(now) if isinstance(d, Grant)}


def half_busy() -> DecisionEngine:
    """Two GPUs of one node, one of which is expected to come free in a minute."""
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 90, 1, expected_end_at=after(60))
    return engine


def test_request_done_in_time_starts_before_head() -> None:
    engine = half_busy()
    head = queue(engine, 1, GpuRequest(gpus=2))
    short = queue(engine, 2, GpuRequest(expected_duration_seconds=60))
    long = queue(engine, 3, GpuRequest(expected_duration_seconds=61))

    assert granted(engine) == {short}
    assert {reason.code for reason in reasons(engine, long, NOW)} >= {ReasonCode.HELD}
    engine.apply(LeaseEnded(reservation_id=short), LeaseEnded(reservation_id=UUID(int=90)))
    assert granted(engine, after(60)) == {head}


def test_what_is_kept_for_the_head_says_for_whom() -> None:
    engine = half_busy()
    head = queue(engine, 1, GpuRequest(gpus=2))
    unknown = queue(engine, 2)

    assert granted(engine) == set()
    kept = [r for r in reasons(engine, unknown, NOW) if r.code is ReasonCode.KEPT_FOR_EARLIER]
    assert [reason.device_uuid for reason in kept] == ["GPU-1", "GPU-2"]
    assert str(head) in kept[0].message


def test_devices_unused_by_head_serve_others() -> None:
    engine = make_engine(make_device(1), make_device(2), make_device(3, node_id="beta"))
    hold(engine, 90, 1, expected_end_at=after(60))
    queue(engine, 1, GpuRequest(gpus=2))
    other = queue(engine, 2)

    (grant,) = engine.decide(NOW)

    assert isinstance(grant, Grant)
    assert grant.reservation_id == other
    assert grant.placed.node_id == "beta"


def test_head_without_known_ends_keeps_all() -> None:
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 90, 1)
    queue(engine, 1, GpuRequest(gpus=2))
    short = queue(engine, 2, GpuRequest(expected_duration_seconds=1))

    assert granted(engine) == set()
    codes = {reason.code for reason in reasons(engine, short, NOW)}
    assert ReasonCode.BEHIND_IN_QUEUE in codes


def test_nodes_of_head_are_freed_once_it_leaves() -> None:
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 90, 1)
    head = queue(engine, 1, GpuRequest(gpus=2, device_uuids=("GPU-1", "GPU-2")))
    named = queue(engine, 2, GpuRequest(device_uuids=("GPU-2",)))
    assert granted(engine) == set()

    engine.apply(RequestEnded(reservation_id=head))

    assert granted(engine) == {named}


def test_optimistic_node_is_kept_beside_promised() -> None:
    devices = [make_device(n, node_id="beta" if n > 2 else "alpha") for n in range(1, 5)]
    engine = make_engine(*devices)
    hold(engine, 90, 1, expected_end_at=after(60))
    hold(engine, 91, 3)
    queue(engine, 1, GpuRequest(gpus=2))
    short = queue(engine, 2, GpuRequest(expected_duration_seconds=30))

    (grant,) = engine.decide(NOW)

    assert isinstance(grant, Grant)
    assert grant.reservation_id == short
    assert grant.placed.node_id == "alpha"


def test_fewer_optimistic_nodes_free_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backfill, "MAX_OPTIMISTIC_NODES", 1)
    pairs = {"alpha": (1, 2), "beta": (3, 4), "gamma": (5, 6), "delta": (7, 8)}
    engine = make_engine(*(make_device(n, node_id=node) for node in pairs for n in pairs[node]))
    hold(engine, 90, 1, 2, expected_end_at=after(60))
    hold(engine, 91, 3, 4)
    hold(engine, 92, 5, 6)
    hold(engine, 93, 7, expected_end_at=after(120))
    queue(engine, 1, GpuRequest(gpus=2))
    other = queue(engine, 2)

    assert granted(engine) == set()
    engine.apply(DeviceSeen(device=make_device(5, node_id="gamma", cordoned=True)))
    assert granted(engine) == {other}


def test_head_waits_for_first_node_by_name() -> None:
    pairs = {"alpha": (1, 2), "beta": (3, 4)}
    engine = make_engine(*(make_device(n, node_id=node) for node in pairs for n in pairs[node]))
    engine.apply(DeviceSeen(device=make_device(2, cordoned=True)))
    hold(engine, 90, 1, expected_end_at=after(60))
    hold(engine, 91, 3, expected_end_at=after(60))
    queue(engine, 1, GpuRequest(gpus=2))
    assert granted(engine) == set()

    engine.apply(DeviceSeen(device=make_device(2)))
    queue(engine, 2)
    (grant,) = engine.decide(NOW)

    assert isinstance(grant, Grant)
    assert grant.placed.node_id == "beta"


def test_nodes_too_small_for_head_serve_others() -> None:
    engine = make_engine(
        make_device(1),
        make_device(2),
        make_device(3, node_id="beta"),
        make_device(4, node_id="beta", name="NVIDIA L4"),
    )
    hold(engine, 90, 1)
    hold(engine, 91, 4)
    queue(engine, 1, GpuRequest(gpus=2, gpu_models=("H100",)))
    other = queue(engine, 2, GpuRequest(gpu_models=("H100",)))

    assert granted(engine) == {other}


def test_overdue_lease_promises_nothing() -> None:
    engine = half_busy()
    queue(engine, 1, GpuRequest(gpus=2), wait_deadline_at=after(3600))
    assert engine.next_decision_at(NOW) == after(60)

    engine.decide(after(60))
    short = queue(engine, 2, GpuRequest(expected_duration_seconds=1))

    assert granted(engine, after(60)) == set()
    assert ReasonCode.BEHIND_IN_QUEUE in {r.code for r in reasons(engine, short, after(60))}


def test_cpus_of_head_are_kept_like_its_gpus() -> None:
    node = Node(node_id="alpha", cpu_count=8)
    engine = make_engine(*(make_device(n) for n in (1, 2, 3)), nodes=(node,))
    hold(engine, 90, 1, 2, expected_end_at=after(60), request=GpuRequest(gpus=2, cpu_count=4))
    queue(engine, 1, GpuRequest(gpus=2, device_uuids=("GPU-1", "GPU-2"), cpu_count=7))
    modest = queue(engine, 2, GpuRequest(cpu_count=1))
    assert granted(engine) == {modest}
    engine.apply(LeaseEnded(reservation_id=modest))
    greedy = queue(engine, 3, GpuRequest(cpu_count=2))

    assert granted(engine) == set()
    codes = {reason.code for reason in reasons(engine, greedy, NOW)}
    assert ReasonCode.INSUFFICIENT_CPU in codes


def test_host_memory_freed_later_is_kept() -> None:
    node = Node(node_id="alpha", cpu_count=8, memory_total_mb=1000)
    engine = make_engine(*(make_device(n) for n in (1, 2, 3)), nodes=(node,))
    much = GpuRequest(gpus=2, cpu_count=1, host_memory_mb=900)
    hold(engine, 90, 1, 2, expected_end_at=after(60), request=much)
    first = GpuRequest(gpus=2, device_uuids=("GPU-1", "GPU-2"), cpu_count=7.5, host_memory_mb=300)
    queue(engine, 1, first)
    greedy = queue(engine, 2, GpuRequest(host_memory_mb=101))

    assert granted(engine) == set()
    codes = {reason.code for reason in reasons(engine, greedy, NOW)}
    assert ReasonCode.INSUFFICIENT_HOST_MEMORY in codes


@pytest.mark.parametrize(
    ("end", "asked", "code"),
    [
        pytest.param(None, GpuRequest(cpu_count=2), ReasonCode.INSUFFICIENT_CPU, id="CPUs"),
        pytest.param(
            None,
            GpuRequest(host_memory_mb=200),
            ReasonCode.INSUFFICIENT_HOST_MEMORY,
            id="memory",
        ),
        pytest.param(
            after(60),
            GpuRequest(host_memory_mb=200),
            ReasonCode.INSUFFICIENT_HOST_MEMORY,
            id="memory, for later",
        ),
    ],
)
def test_head_keeps_host_room_where_it_may_start(
    end: datetime | None, asked: GpuRequest, code: ReasonCode
) -> None:
    """On alpha both of its models, on beta one alone, which is too few for it."""
    nodes = [Node(node_id=name, cpu_count=8, memory_total_mb=1000) for name in ("alpha", "beta")]
    h100 = [make_device(1), make_device(2), make_device(4, node_id="beta")]
    l4 = make_device(3, name="NVIDIA L4")
    engine = make_engine(*h100, l4, nodes=tuple(nodes))
    holder = hold(engine, 90, 1, expected_end_at=end)
    first = GpuRequest(gpus=2, gpu_models=("H100",), cpu_count=7, host_memory_mb=900)
    head = queue(engine, 1, first)
    modest = queue(engine, 2, GpuRequest(gpu_models=("L4",), cpu_count=1, host_memory_mb=100))
    assert granted(engine) == {modest}
    engine.apply(LeaseEnded(reservation_id=modest))
    greedy = queue(engine, 3, replace(asked, gpu_models=("L4",)))

    assert granted(engine) == set()
    assert code in {reason.code for reason in reasons(engine, greedy, NOW)}
    engine.apply(DeviceSeen(device=make_device(5, node_id="beta", name="NVIDIA L4")))
    assert granted(engine) == {greedy}
    engine.apply(LeaseEnded(reservation_id=holder))
    assert granted(engine) == {head}


def test_head_waits_for_first_node_with_cpus() -> None:
    places = {2: "alpha", 4: "beta", 5: "gamma"}
    engine = make_engine(
        make_device(1, node_id="alpha"),
        make_device(3, node_id="beta"),
        *(make_device(number, node_id=node_id) for number, node_id in places.items()),
        nodes=tuple(Node(node_id=node_id, cpu_count=4.0) for node_id in places.values()),
        preemption_grace_seconds=900.0,
    )
    for device, minutes in ((2, 10), (4, 20), (5, 30)):
        hold(
            engine,
            90 + device,
            device,
            request=GpuRequest(cpu_count=4.0, preemptible=True),
            expected_end_at=NOW + timedelta(minutes=minutes),
        )
    queue(engine, 1, GpuRequest(cpu_count=4.0, priority=1))

    assert engine.decide(NOW) == ()  # preemption would not start it any sooner


def test_shorter_of_equal_requests_backfill_first() -> None:
    devices = [make_device(n) for n in (1, 2, 3, 4)]
    engine = make_engine(*devices)
    hold(engine, 90, 1, expected_end_at=after(60))
    queue(engine, 1, GpuRequest(gpus=4))
    lengths = [100, 50, 70, 50, 60, 10]
    ids = [
        queue(engine, n, GpuRequest(expected_duration_seconds=length))
        for n, length in enumerate(lengths, start=2)
    ]

    assert granted(engine) == {ids[1], ids[3]}


def test_newcomer_passes_only_within_the_bound() -> None:
    engine = make_engine(make_device(1), aging_seconds=10.0)
    hold(engine, 90, 1, expected_end_at=after(10))
    old = queue(engine, 1, queued_at=NOW, wait_deadline_at=after(3600))
    running, started = UUID(int=90), None
    for number in range(2, 30):
        now = after(10 * (number - 1))
        request = GpuRequest(priority=5, expected_duration_seconds=10)
        queue(engine, number, request, queued_at=after(10 * (number - 2)))
        engine.apply(LeaseEnded(reservation_id=running))
        (running,) = granted(engine, now)
        if running == old:
            started = now
            break

    assert started is not None
    assert started <= after(5 * 10 + 10)  # 10 s of waiting make up for each point of priority


REQUESTS = st.builds(
    GpuRequest,
    gpus=st.integers(1, 3),
    nodes=st.sampled_from([1, 1, 2]),
    cpu_count=st.sampled_from([None, None, 2.0, 5.0]),
    gpu_models=st.sampled_from([(), ("H100",), ("L4",)]),
    expected_duration_seconds=st.sampled_from([10.0, 20.0, 40.0]),
)


@st.composite
def fleets(draw: st.DrawFn) -> list[Device]:
    names = ["NVIDIA H100", "NVIDIA H100", "NVIDIA L4"]
    return [
        make_device(number, node_id=node_id, name=draw(st.sampled_from(names)))
        for number, node_id in enumerate(("alpha",) * 3 + ("beta",) * 3 + ("gamma",) * 2)
    ]


def start_of_head(
    devices: Sequence[Device], ends: Sequence[float], requests: Sequence[GpuRequest]
) -> datetime | None:
    """When the first request starts if every lease ends when it is expected to, to the second."""
    nodes = tuple(Node(node_id=n, cpu_count=6) for n in ("alpha", "beta", "gamma"))
    engine = make_engine(*devices, nodes=nodes)
    running = []
    for number, seconds in enumerate(ends):
        hold(engine, 900 + number, number, expected_end_at=after(seconds))
        running.append((after(seconds), UUID(int=900 + number)))
    waiting = dict(enumerate(requests, start=1))
    for number, request in waiting.items():
        entry = make_queued(number, request, wait_deadline_at=after(9999))
        engine.apply(RequestQueued(entry=entry))
    now = NOW
    while True:
        for reservation_id in granted(engine, now):
            if reservation_id.int == 1:
                return now
            seconds = waiting[reservation_id.int].expected_duration_seconds or 0
            running.append((now + timedelta(seconds=seconds), reservation_id))
        if not running or all(entry.reservation_id.int != 1 for entry in engine.waiting):
            return None
        now = min(at for at, _ in running)
        over = [each for each in running if each[0] <= now]
        running = [each for each in running if each[0] > now]
        engine.apply(*(LeaseEnded(reservation_id=reservation_id) for _, reservation_id in over))


@given(
    fleets(),
    st.lists(st.sampled_from([5.0, 10.0, 15.0, 30.0, 50.0]), max_size=8),
    st.lists(REQUESTS, min_size=1, max_size=8),
)
def test_head_starts_no_later_than_without_others(
    devices: list[Device], ends: list[float], requests: list[GpuRequest]
) -> None:
    assert start_of_head(devices, ends, requests) == start_of_head(devices, ends, requests[:1])


def test_gang_needs_both_nodes_at_once() -> None:
    engine = make_engine(
        *(make_device(n, node_id=f"node-{(n - 1) // 2}") for n in range(1, 7)),
    )
    hold(engine, 91, 3, 4, expected_end_at=after(100))
    hold(engine, 92, 5, expected_end_at=after(50))
    hold(engine, 93, 6)
    queue(engine, 1, GpuRequest(gpus=2, nodes=2))
    short = queue(engine, 2, GpuRequest(expected_duration_seconds=50))
    long = queue(engine, 3, GpuRequest(expected_duration_seconds=51))

    assert granted(engine) == {short}
    codes = {reason.code for reason in reasons(engine, long, NOW)}
    assert ReasonCode.BEHIND_IN_QUEUE in codes


def test_balanced_head_counts_ended_lease_as_idle() -> None:
    engine = make_engine(make_device(1, free_mb=70_000), make_device(2, used=100.0, free_mb=0))
    hold(engine, 90, 2, expected_end_at=after(100))
    queue(engine, 1, GpuRequest(gpus=2, balanced_memory=True))
    short = queue(engine, 2, GpuRequest(expected_duration_seconds=100))
    queue(engine, 3, GpuRequest(expected_duration_seconds=101))

    assert granted(engine) == {short}
