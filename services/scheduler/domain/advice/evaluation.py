"""Evaluates a request at its queue position: its place, or why there is none and what helps."""

from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import NodeId
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import Reason, Suggestion
from services.scheduler.domain.advice.expected_start import ExpectedStart, forecast_start
from services.scheduler.domain.advice.suggestions import TRIALS, suggest
from services.scheduler.domain.model.fleet import Fleet
from services.scheduler.domain.model.inputs import QueuedRequest, arriving_request
from services.scheduler.domain.placement.device_choice import Scored
from services.scheduler.domain.placement.eligibility import can_ever_serve
from services.scheduler.domain.placement.placement import Placed, eligible
from services.scheduler.domain.queue.decision_engine import DecisionEngine

MANY_NODES: Final = 8  # a trial of such a gang takes milliseconds


class Evaluation(Struct, frozen=True, kw_only=True):
    """Result of `evaluate`: `placed`, or every reason why not with what would help; never both.

    `impossible`: this fleet can never serve it, so that a reservation of it is rejected;
    `largest_memory_mb` is then that of the largest device which could, but for its memory.
    """

    placed: Placed | None = None
    reasons: tuple[Reason, ...] = ()
    suggestion: Suggestion | None = None
    expected_start: ExpectedStart | None = None
    impossible: bool = False
    largest_memory_mb: int | None = None

    @property
    def expected_start_at(self) -> datetime | None:
        return self.expected_start.at if self.expected_start is not None else None


def available(
    engine: DecisionEngine, node_id: NodeId, request: GpuRequest, now: datetime
) -> tuple[Scored, ...]:
    """The node's devices of which a newcomer would be granted any one now, best first."""
    with engine.what_if(now) as what_if:
        context = what_if.context(arriving_request(request, now))
        return eligible(context, context.fleet.nodes.get(node_id, ()), request)


def evaluate(
    engine: DecisionEngine, entry: QueuedRequest, now: datetime, request: GpuRequest | None = None
) -> Evaluation:
    """Return whether the request would be granted now, in the place where it waits or, as a
    newcomer, would wait.

    With a `request` as if that were its request. Nothing else may use the engine meanwhile.
    """
    request_entry = entry if request is None else replace(entry, request=request)
    with engine.what_if(now) as what_if:
        placed = what_if.place(request_entry)
        if placed is not None:
            return Evaluation(placed=placed)
        never = what_if.impossible_reasons(request_entry)
        reasons = never or what_if.blocking_reasons(request_entry)
        suggestion = suggest(
            request_entry.request,
            lambda changed: what_if.can_place(replace(request_entry, request=changed)),
            trials=TRIALS if request_entry.request.nodes <= MANY_NODES else TRIALS // 4,
        )
    return Evaluation(
        reasons=reasons,
        suggestion=suggestion,
        expected_start=forecast_start(engine, request_entry, now),
        impossible=bool(never),
        largest_memory_mb=largest_memory_mb(engine.fleet, request_entry.request) if never else None,
    )


def largest_memory_mb(fleet: Fleet, request: GpuRequest) -> int | None:
    """Return the largest total of a device that could serve the request, but for its memory."""
    of_any_size = replace(request, min_memory_mb=None)
    totals_mb = (
        device.total_mb
        for node_id, devices in fleet.nodes.items()
        for device in devices
        if device.total_mb is not None and can_ever_serve(device, of_any_size, fleet.node(node_id))
    )
    return max(totals_mb, default=None)
