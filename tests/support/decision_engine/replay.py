"""Recorded histories of the engine decided again, by a process of its own: `python -m` this."""

import sys
from collections.abc import Iterable
from datetime import datetime

import msgspec

from services.scheduler.domain.model.inputs import Input
from services.scheduler.domain.placement.decisions import Decision
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine


class Recorded(msgspec.Struct, frozen=True):
    """What an engine was told and, where there is a time, what it decided then."""

    policy: Policy
    log: list[tuple[tuple[Input, ...], datetime | None, tuple[Decision, ...]]]


def decided_otherwise(histories: Iterable[Recorded]) -> list[int]:
    """Which of them come out otherwise."""
    return [number for number, recorded in enumerate(histories) if not _is_same(recorded)]


def _is_same(recorded: Recorded) -> bool:
    engine = DecisionEngine(recorded.policy)
    for inputs, at, decisions in recorded.log:
        engine.apply(*inputs)
        if at is not None and engine.decide(at) != decisions:
            return False
    return True


if __name__ == "__main__":
    told = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Recorded])
    sys.stdout.write(f"{len(told)} histories, otherwise: {decided_otherwise(told)}\n")
