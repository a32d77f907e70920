"""Recorded turns of the engine, decided again."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.engine import Engine
from services.scheduler.domain.inputs import Input
from services.scheduler.domain.policy import Policy


class Turn(Struct, frozen=True, kw_only=True):
    """What the engine was given before one decision, and what came out.

    The inputs of a `keyframe` are the whole state; a replay can begin there, with its `policy`.
    """

    decision_id: int
    decided_at: datetime
    keyframe: bool
    inputs: tuple[Input, ...]
    outcomes: tuple[Decision, ...]
    policy: Policy | None = None


class Repeated(Struct, frozen=True, kw_only=True):
    """A turn decided again. `outcomes` are those of now."""

    decision_id: int
    same: bool
    outcomes: tuple[Decision, ...]


def repeat(turns: Iterable[Turn], policy: Policy) -> Iterator[Repeated]:
    """Each turn decided again, in their order, from the first keyframe on.

    `policy` is that of keyframes which do not tell theirs.

    Where a turn comes out otherwise the state is another one from there, so nothing more is
    compared before the next keyframe.
    """
    engine: Engine | None = None
    for turn in turns:
        if turn.keyframe:
            engine = Engine(turn.policy or policy)
        if engine is None:
            continue
        engine.apply(*turn.inputs)
        outcomes = engine.decide(turn.decided_at)
        same = outcomes == turn.outcomes
        yield Repeated(decision_id=turn.decision_id, same=same, outcomes=outcomes)
        if not same:
            engine = None
