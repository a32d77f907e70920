"""Decides recorded cycles again."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from services.scheduler.domain.model.inputs import Input
from services.scheduler.domain.placement.decisions import Decision
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine


class RecordedCycle(Struct, frozen=True, kw_only=True):
    """What the engine was given before one decision, and what came out.

    The inputs of a `keyframe` are the whole state; a replay can begin there, with its `policy`.
    """

    decision_id: int
    decided_at: datetime
    keyframe: bool
    inputs: tuple[Input, ...]
    outcomes: tuple[Decision, ...]
    policy: Policy | None = None


class ReplayedCycle(Struct, frozen=True, kw_only=True):
    """A recorded cycle decided again. `outcomes` are those of now."""

    decision_id: int
    is_same: bool
    outcomes: tuple[Decision, ...]


def replay_cycles(cycles: Iterable[RecordedCycle], policy: Policy) -> Iterator[ReplayedCycle]:
    """Decide each cycle again, in their order, from the first keyframe on.

    `policy` is for keyframes recorded without one. After a difference the state is another one, so
    nothing more is compared before the next keyframe.
    """
    engine: DecisionEngine | None = None
    for cycle in cycles:
        if cycle.keyframe:
            engine = DecisionEngine(cycle.policy or policy)
        if engine is None:
            continue
        engine.apply(*cycle.inputs)
        outcomes = engine.decide(cycle.decided_at)
        is_same = outcomes == cycle.outcomes
        yield ReplayedCycle(decision_id=cycle.decision_id, is_same=is_same, outcomes=outcomes)
        if not is_same:
            engine = None
