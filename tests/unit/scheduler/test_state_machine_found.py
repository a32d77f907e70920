"""What random histories have found, cut down to what matters."""

from datetime import timedelta
from uuid import UUID

from schemas.gpu_request import GpuRequest
from services.scheduler.domain.decisions import Grant
from services.scheduler.domain.engine import Engine
from services.scheduler.domain.inputs import DeviceGone, DeviceSeen, RequestEnded, Settled
from tests.unit.scheduler.builders import NOW, hold, make_device, make_engine, queue


def test_what_was_kept_on_a_node_that_has_become_too_small_is_free_again() -> None:
    """Four GPUs were kept on a node until a lease there ends; then one of the four is taken out,
    and whoever they were kept for could not start there any more.
    """
    engine = make_engine(*(make_device(number) for number in (1, 2, 3, 4)))
    engine.apply(Settled(settled=False))
    hold(engine, 9, 1, 2, expected_end_at=NOW + timedelta(minutes=10))
    queue(engine, 1, GpuRequest(gpus=4, priority=1))
    engine.decide(NOW)

    engine.apply(DeviceGone(number=4))
    waiting = queue(engine, 2)
    again = Engine(engine.policy)
    again.apply(*engine.state())
    decided = engine.decide(NOW)

    assert [d.reservation_id for d in decided if isinstance(d, Grant)] == [waiting]
    assert again.decide(NOW) == decided


def test_a_turn_ends_though_one_behind_its_like_tells_how_long_it_takes() -> None:
    """Of two that are alike the first tells no duration, the second does, and neither has a place:
    the second was taken for a first that had been overtaken, for ever.
    """
    engine = make_engine()
    engine.apply(Settled(settled=False))
    first = queue(engine, 1)
    second = queue(engine, 2, GpuRequest(expected_duration_seconds=600.0))

    assert engine.decide(NOW) == ()
    assert [entry.reservation_id for entry in engine.waiting] == [first, second]


def test_a_request_that_asks_for_something_else_is_looked_at_as_it_is_now() -> None:
    """It had been noted as it was, in front of one that is like it, and was looked at as that."""
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 9, 1, expected_end_at=NOW + timedelta(minutes=10))
    queue(engine, 1, GpuRequest(gpus=2, priority=1))
    changed = queue(engine, 2)
    queue(engine, 3)

    queue(engine, 2, GpuRequest(expected_duration_seconds=60.0))

    assert granted(engine) == [changed]


def test_a_request_behind_one_that_has_become_its_first_is_looked_at_too() -> None:
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


def test_what_one_request_leaves_is_there_for_one_behind_it_whose_like_is_before_it() -> None:
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


def granted(engine: Engine) -> list[UUID]:
    return [each.reservation_id for each in engine.decide(NOW) if isinstance(each, Grant)]
