"""A what-if leaves the decision engine as it was, however it ends."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.indexes.node_index import NodeIndex
from services.scheduler.domain.model.inputs import FleetComplete, arriving_request
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import NOW, hold, make_device, make_engine, queue

LATER = NOW + timedelta(seconds=100)
ASKED = GpuRequest(gpus=2)


def undecided_engine(**policy: Any) -> DecisionEngine:
    """Two requests could be granted and a lease would be preempted before a newcomer is placed."""
    engine = make_engine(*(make_device(number) for number in range(1, 4)), **policy)
    hold(engine, 90, 3, request=GpuRequest(preemptible=True, priority=-5))
    for number, priority in ((1, 9), (2, 8), (3, 7)):
        queue(engine, number, GpuRequest(priority=priority))
    return engine


def test_what_was_decided_to_answer_is_undone() -> None:
    engine, untouched = undecided_engine(), undecided_engine()
    before = engine.state()

    with engine.what_if(NOW) as what_if:
        assert what_if.place(arriving_request(ASKED, NOW)) is None
        assert [what_if.find_queued(UUID(int=number)) is None for number in (1, 2, 3)] == [
            False
        ] * 3

    assert engine.state() == before
    assert engine.decide(NOW) == untouched.decide(NOW)
    assert engine.decide(LATER) == untouched.decide(LATER)


def test_error_in_what_if_restores_the_engine() -> None:
    engine, untouched = undecided_engine(), undecided_engine()
    before = engine.state()

    def ask_and_fail() -> None:
        with engine.what_if(NOW) as what_if:
            what_if.place(arriving_request(ASKED, NOW))
            raise KeyError

    with pytest.raises(KeyError):
        ask_and_fail()

    assert engine.state() == before
    assert engine.decide(NOW) == untouched.decide(NOW)


def test_error_between_decisions_restores_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, find, calls = undecided_engine(), NodeIndex.find, iter(range(100))
    before = engine.state()

    def find_twice(*arguments: Any) -> Any:
        if next(calls) == 2:
            raise MemoryError
        return find(*arguments)

    monkeypatch.setattr(NodeIndex, "find", find_twice)
    with pytest.raises(MemoryError), engine.what_if(NOW) as what_if:
        what_if.place(arriving_request(ASKED, NOW))

    assert engine.state() == before


@pytest.mark.parametrize(
    "use",
    [
        lambda engine: engine.apply(FleetComplete(complete=False)),
        lambda engine: engine.decide(NOW),
        lambda engine: engine.state(),
        lambda engine: engine.fleet,
        lambda engine: engine.waiting,
        lambda engine: engine.queue_length,
        lambda engine: engine.next_decision_at(NOW),
        lambda engine: engine.what_if(NOW).__enter__(),
    ],
)
def test_engine_is_locked_during_a_what_if(
    use: Callable[[DecisionEngine], object],
) -> None:
    engine = undecided_engine()
    before = engine.state()

    with engine.what_if(NOW), pytest.raises(RuntimeError, match="open what-if"):
        use(engine)

    assert engine.state() == before
