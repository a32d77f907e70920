"""What random histories have found, cut down to what matters."""

from datetime import timedelta
from uuid import UUID

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.model.inputs import (
    DeviceGone,
    DeviceSeen,
    FleetComplete,
    LeaseEnded,
    RequestEnded,
    arriving_request,
)
from services.scheduler.domain.placement.decisions import Grant, Preempt
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import (
    NOW,
    hold,
    make_device,
    make_engine,
    queue,
    reasons,
    would_grant,
)


def test_reservation_of_shrunk_node_is_freed() -> None:
    """Four GPUs were kept on a node until a lease there ends; then one of the four is taken out,
    and whoever they were kept for could not start there any more.
    """
    engine = make_engine(*(make_device(number) for number in (1, 2, 3, 4)))
    engine.apply(FleetComplete(complete=False))
    hold(engine, 9, 1, 2, expected_end_at=NOW + timedelta(minutes=10))
    queue(engine, 1, GpuRequest(gpus=4, priority=1))
    engine.decide(NOW)

    engine.apply(DeviceGone(number=4))
    waiting = queue(engine, 2)
    again = DecisionEngine(engine.policy)
    again.apply(*engine.state())
    decided = engine.decide(NOW)

    assert [d.reservation_id for d in decided if isinstance(d, Grant)] == [waiting]
    assert again.decide(NOW) == decided


def test_turn_ends_behind_an_equal_with_duration() -> None:
    """Of two that are alike the first tells no duration, the second does, and neither has a place:
    the second was taken for a first that had been overtaken, for ever.
    """
    engine = make_engine()
    engine.apply(FleetComplete(complete=False))
    first = queue(engine, 1)
    second = queue(engine, 2, GpuRequest(expected_duration_seconds=600.0))

    assert engine.decide(NOW) == ()
    assert [entry.reservation_id for entry in engine.waiting] == [first, second]


def test_changed_request_is_evaluated_anew() -> None:
    """It had been noted as it was, in front of one that is like it, and was looked at as that."""
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 9, 1, expected_end_at=NOW + timedelta(minutes=10))
    queue(engine, 1, GpuRequest(gpus=2, priority=1))
    changed = queue(engine, 2)
    queue(engine, 3)

    queue(engine, 2, GpuRequest(expected_duration_seconds=60.0))

    assert granted(engine) == [changed]


def test_request_behind_a_new_first_is_evaluated() -> None:
    """The second, which had come as a shorter one, was looked at alone when the first had left."""
    engine = make_engine(*(make_device(number) for number in (1, 2)), make_device(3, cordoned=True))
    hold(engine, 9, 1, expected_end_at=NOW + timedelta(seconds=100))
    queue(engine, 1, GpuRequest(gpus=3, priority=3))
    first = queue(engine, 2, GpuRequest(priority=2))
    short = queue(engine, 3, GpuRequest(expected_duration_seconds=50.0))
    assert granted(engine) == []

    queue(engine, 4, GpuRequest(priority=1, expected_duration_seconds=200.0))
    engine.apply(RequestEnded(reservation_id=first), DeviceSeen(device=make_device(3)))

    assert granted(engine) == [short]


def test_leftover_serves_an_equal_of_an_earlier() -> None:
    """Only requests whose first like was behind the one that left were looked at again."""
    engine = make_engine(*(make_device(number) for number in (1, 2, 3)))
    hold(engine, 9, 1, expected_end_at=NOW + timedelta(seconds=100))
    queue(engine, 1, GpuRequest(gpus=3))
    queue(engine, 2)
    between = queue(engine, 3, GpuRequest(gpus=2))
    short = queue(engine, 4, GpuRequest(expected_duration_seconds=50.0))
    assert granted(engine) == []

    engine.apply(RequestEnded(reservation_id=between))

    assert granted(engine) == [short]


def test_newcomer_is_judged_behind_earlier_grants() -> None:
    """Only the first of those that are alike was thought to be granted before it."""
    engine = make_engine(make_device(1), make_device(2))
    queue(engine, 1)
    queue(engine, 2)

    assert would_grant(engine, GpuRequest(), NOW) is None
    with engine.what_if(NOW) as what_if:
        assert what_if.reasons(arriving_request(GpuRequest(), NOW))
    assert granted(engine) == [UUID(int=1), UUID(int=2)]


def test_what_if_changes_no_later_decision() -> None:
    """What would be decided first is a rejection, grants and a preemption."""
    engine = make_engine(make_device(1), make_device(2), make_device(3, node_id="beta"))
    weak = hold(engine, 9, 3, request=GpuRequest(priority=-1, preemptible=True))
    queue(engine, 1, GpuRequest(gpus=7), queued_at=NOW)
    strong = queue(engine, 2, GpuRequest(node_ids=("beta",)), queued_at=NOW)
    others = [queue(engine, number, queued_at=NOW) for number in (3, 4)]
    before = engine.state()

    assert would_grant(engine, GpuRequest(), NOW) is None
    assert would_grant(engine, GpuRequest(gpus=2, priority=1), NOW) is not None
    assert would_grant(engine, GpuRequest(), NOW, in_place_of=others[0]) is not None

    assert engine.state() == before
    assert [(type(each).__name__, each.reservation_id.int) for each in engine.decide(NOW)] == [
        ("Rejection", 1),
        ("Preempt", weak.int),
        ("Grant", 3),
        ("Grant", 4),
    ]
    assert [entry.reservation_id for entry in engine.waiting] == [strong]


def test_what_if_behind_another_is_judged_there() -> None:
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 9, 1)
    first = queue(engine, 1, GpuRequest(gpus=2, priority=1))
    second = queue(engine, 2, GpuRequest(gpus=2, priority=1))
    assert granted(engine) == []

    assert would_grant(engine, GpuRequest(), NOW, in_place_of=first) is None
    assert would_grant(engine, GpuRequest(priority=1), NOW, in_place_of=first) is not None
    engine.apply(RequestEnded(reservation_id=second))
    assert would_grant(engine, GpuRequest(), NOW, in_place_of=first) is not None


def test_what_if_uses_room_of_an_ending_wait() -> None:
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 9, 1)
    queue(engine, 1, GpuRequest(gpus=2), wait_deadline_at=NOW + timedelta(seconds=5))
    waiting = queue(engine, 2)
    assert granted(engine) == []
    later = NOW + timedelta(seconds=5)

    assert would_grant(engine, GpuRequest(cpu_count=None), NOW, in_place_of=waiting) is None
    assert would_grant(engine, GpuRequest(), later, in_place_of=waiting) is not None
    assert reasons(engine, waiting, later) == ()
    assert [each.reservation_id.int for each in engine.decide(later)] == [1, 2]


def test_extended_wait_does_not_end_early() -> None:
    engine = make_engine(make_device(1))
    hold(engine, 9, 1)
    waiting = queue(engine, 1, wait_deadline_at=NOW + timedelta(seconds=5))
    queue(engine, 1, wait_deadline_at=NOW + timedelta(seconds=50))

    assert engine.next_decision_at(NOW) == NOW + timedelta(seconds=50)
    assert engine.decide(NOW + timedelta(seconds=5)) == ()
    assert [entry.reservation_id for entry in engine.waiting] == [waiting]


def test_vain_preemptor_may_preempt_again() -> None:
    """The first that was told to stop did, but its GPU had been cordoned; nobody looked again."""
    weak = GpuRequest(priority=-1, preemptible=True)
    engine = make_engine(make_device(1), make_device(2, node_id="beta"))
    stays = hold(engine, 8, 1, request=weak)
    stops = hold(engine, 9, 2, request=weak, granted_at=NOW + timedelta(seconds=1))
    strong = queue(engine, 1)
    assert [each.reservation_id for each in engine.decide(NOW)] == [stops]
    engine.apply(DeviceSeen(device=make_device(2, node_id="beta", cordoned=True)))
    assert engine.decide(NOW) == ()

    engine.apply(LeaseEnded(reservation_id=stops))

    (decided,) = engine.decide(NOW)
    assert isinstance(decided, Preempt)
    assert (decided.reservation_id, decided.for_reservation_id) == (stays, strong)


def test_grant_behind_gang_keeps_its_reservation() -> None:
    """A grant that ended just when the gang was to start moved the gang to another node, and what
    it had kept went to one in between who had been told that he had no place.
    """
    engine = make_engine(
        *(make_device(number, node_id="alpha") for number in (1, 2)),
        *(make_device(number, node_id="beta") for number in (3, 4)),
        *(make_device(number, node_id="gamma") for number in (5, 6)),
    )
    for number, devices in ((8, (1, 2)), (9, (3, 4))):
        hold(engine, number, *devices, expected_end_at=NOW + timedelta(seconds=60))
    queue(engine, 1, GpuRequest(gpus=2, nodes=2))
    between = queue(engine, 2)
    queue(engine, 3, GpuRequest(expected_duration_seconds=60.0, preemptible=True))
    sooner = queue(engine, 4, GpuRequest(expected_duration_seconds=59.0, preemptible=True))

    assert would_grant(engine, GpuRequest(), NOW, in_place_of=between) is None
    assert granted(engine) == [sooner]


def granted(engine: DecisionEngine) -> list[UUID]:
    return [each.reservation_id for each in engine.decide(NOW) if isinstance(each, Grant)]
