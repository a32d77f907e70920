"""What is to be said of a request at its place in the queue: granted, or why not and what helps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.gpu_request import GpuRequest, Reason, Suggestion
from services.scheduler.domain.engine import Engine
from services.scheduler.domain.expected_start import FAR, expected_start
from services.scheduler.domain.inputs import QueuedRequest, RequestEnded, RequestQueued
from services.scheduler.domain.placement import Placed
from services.scheduler.domain.suggest import TRIALS, suggest

NOBODY: Final = UUID(int=0)
LAST: Final = 1 << 62
MANY_NODES: Final = 8  # a trial of such a gang takes milliseconds


class Verdict(Struct, frozen=True, kw_only=True):
    """`placed`, or every reason why not with what would help; never both."""

    placed: Placed | None = None
    reasons: tuple[Reason, ...] = ()
    suggestion: Suggestion | None = None
    expected_start_at: datetime | None = None


def newcomer(request: GpuRequest, now: datetime) -> QueuedRequest:
    """A request that comes now, behind everybody of its priority."""
    return QueuedRequest(
        reservation_id=NOBODY, request=request, arrival=LAST, wait_deadline_at=FAR, queued_at=now
    )


def judge(
    engine: Engine, entry: QueuedRequest, now: datetime, request: GpuRequest | None = None
) -> Verdict:
    """Whether it would be granted now, in the place where it waits or, as a newcomer, would wait.

    With a `request` as if it had asked for that instead. The engine is as it was when this returns;
    in between it is not for anybody else.
    """
    asked = entry if request is None else replace(entry, request=request)
    with _trial(engine, entry, now) as would_grant:
        placed = would_grant(asked.request)
        if placed is not None:
            return Verdict(placed=placed)
        reasons = engine.reasons_for(asked.request, now, in_place_of=entry.reservation_id)
        start = expected_start(engine, asked, now)
        suggestion = suggest(
            asked.request,
            lambda changed: would_grant(changed) is not None,
            trials=TRIALS if asked.request.nodes <= MANY_NODES else TRIALS // 4,
        )
    return Verdict(reasons=reasons, suggestion=suggestion, expected_start_at=start)


@contextmanager
def _trial(
    engine: Engine, entry: QueuedRequest, now: datetime
) -> Iterator[Callable[[GpuRequest], Placed | None]]:
    """Asks the engine for a changed request where the entry stands, or, by its priority, would."""
    stands = None if entry.reservation_id == NOBODY else entry.request.priority

    def would_grant(request: GpuRequest) -> Placed | None:
        nonlocal stands
        if request.priority != stands:
            engine.apply(RequestQueued(entry=replace(entry, request=request)))
            stands = request.priority
        return engine.would_grant(request, now, in_place_of=entry.reservation_id)

    try:
        yield would_grant
    finally:
        engine.apply(
            RequestEnded(reservation_id=NOBODY)
            if entry.reservation_id == NOBODY
            else RequestQueued(entry=entry)
        )
