"""What is to be said of a request at its place in the queue: granted, or why not and what helps."""

from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.gpu_request import GpuRequest, Reason, Suggestion
from services.scheduler.domain.engine import Engine
from services.scheduler.domain.expected_start import expected_start
from services.scheduler.domain.inputs import QueuedRequest
from services.scheduler.domain.placement import Placed
from services.scheduler.domain.suggest import TRIALS, suggest

MANY_NODES: Final = 8  # a trial of such a gang takes milliseconds


class Verdict(Struct, frozen=True, kw_only=True):
    """`placed`, or every reason why not with what would help; never both."""

    placed: Placed | None = None
    reasons: tuple[Reason, ...] = ()
    suggestion: Suggestion | None = None
    expected_start_at: datetime | None = None


def judge(
    engine: Engine, entry: QueuedRequest, now: datetime, request: GpuRequest | None = None
) -> Verdict:
    """Whether it would be granted now, in the place where it waits or, as a newcomer, would wait.

    With a `request` as if it had asked for that instead. While this is at work the engine is not
    for anybody else.
    """
    asked = entry if request is None else replace(entry, request=request)
    placed = engine.place(asked, now)
    if placed is not None:
        return Verdict(placed=placed)
    reasons = engine.reasons_of(asked, now)
    suggestion = suggest(
        asked.request,
        lambda changed: engine.has_place(replace(asked, request=changed), now),
        trials=TRIALS if asked.request.nodes <= MANY_NODES else TRIALS // 4,
    )
    start = expected_start(engine, asked, now)
    return Verdict(reasons=reasons, suggestion=suggestion, expected_start_at=start)
