"""One pass over the queue: who is granted what, who can never be, whose time is up, who waits."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from schemas.gpu_request import GpuRequest, Reason
from services.scheduler.domain.decisions import Grant, Rejection, TimeOut
from services.scheduler.domain.eligibility import can_ever_serve
from services.scheduler.domain.explain import blocking_reasons, impossible_reasons
from services.scheduler.domain.fleet import Fleet
from services.scheduler.domain.inputs import QueuedRequest
from services.scheduler.domain.placement import Look, Weights, place

__all__ = ["Grant", "Outcome", "QueuedRequest", "Rejection", "TimeOut", "Wait", "decide"]


class Wait(Struct, frozen=True, kw_only=True):
    """The request stays queued; `position` counts from 1 among those that do."""

    reservation_id: UUID
    request: GpuRequest
    position: int
    look: Look

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Every reason that blocks it, worked out when somebody asks."""
        return blocking_reasons(self.look, self.request)


Outcome = Grant | Rejection | TimeOut | Wait


def in_order(queue: Iterable[QueuedRequest]) -> list[QueuedRequest]:
    """Highest priority first, then by arrival."""
    return sorted(queue, key=lambda entry: (-entry.request.priority, entry.arrival))


def decide(
    fleet: Fleet,
    queue: Iterable[QueuedRequest],
    now: datetime,
    weights: Weights = Weights(),  # noqa: B008  # frozen
) -> tuple[Outcome, ...]:
    """What happens to every request of the queue, in its order.

    A request that has to wait keeps every device it could ever take from those behind it: nobody
    who came later delays it. Others may pass it on devices that are of no use to it.
    """
    return tuple(_outcomes(Look(fleet=fleet, weights=weights), in_order(queue), now))


def claims(fleet: Fleet, request: GpuRequest) -> frozenset[int]:
    """Numbers of the devices that this request could be granted some day."""
    usable = (
        [
            device.number
            for device in devices
            if can_ever_serve(device, request, fleet.node(node_id))
        ]
        for node_id, devices in fleet.nodes.items()
    )
    return frozenset(n for numbers in usable if len(numbers) >= request.gpus for n in numbers)


def _outcomes(look: Look, queue: list[QueuedRequest], now: datetime) -> Iterator[Outcome]:
    impossible: dict[GpuRequest, tuple[Reason, ...]] = {}
    stuck: set[GpuRequest] = set()
    waiting = 0
    for entry in queue:
        request, reservation_id = entry.request, entry.reservation_id
        if request not in impossible:
            impossible[request] = impossible_reasons(look.fleet, request)
        if reasons := impossible[request]:
            yield Rejection(reservation_id=reservation_id, reasons=reasons)
            continue
        if entry.wait_deadline_at <= now:
            yield TimeOut(reservation_id=reservation_id, reasons=blocking_reasons(look, request))
            continue
        # During a pass devices are only taken: what found no place before finds none now.
        placed = place(look, request) if request not in stuck else None
        if placed is not None:
            yield Grant(reservation_id=reservation_id, placed=placed)
            fleet = look.fleet
            for node_id in placed.node_ids:
                fleet = fleet.holding(placed.numbers, node_id, reservation_id)
            look = Look(fleet=fleet, claimed=look.claimed, weights=look.weights)
            continue
        waiting += 1
        yield Wait(reservation_id=reservation_id, request=request, position=waiting, look=look)
        if request not in stuck:
            stuck.add(request)
            claimed = {**dict.fromkeys(claims(look.fleet, request), reservation_id), **look.claimed}
            look = Look(fleet=look.fleet, claimed=claimed, weights=look.weights)
