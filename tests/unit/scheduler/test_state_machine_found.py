"""What random histories have found, cut down to what matters."""

from datetime import timedelta

from schemas.gpu_request import GpuRequest
from services.scheduler.domain.decisions import Grant
from services.scheduler.domain.engine import Engine
from services.scheduler.domain.inputs import DeviceGone, Settled
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
