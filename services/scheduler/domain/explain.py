"""Why a request waits or can never be granted, in codes for programs and sentences for people."""

from collections import Counter
from collections.abc import Iterator, Sequence

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest, Reason, ReasonCode
from schemas.scheduler import ReservationState
from services.scheduler.domain.eligibility import NEVER, blocks, can_ever_serve, reason_for
from services.scheduler.domain.fleet import Device, Fleet
from services.scheduler.domain.placement import BALANCED_SHARE, Look, choose, eligible, place

NO_GPUS = Reason(
    code=ReasonCode.NO_GPUS,
    message="no node of this installation reports a GPU; `--simulate` makes up a fleet to try on",
)


def impossible_reasons(fleet: Fleet, request: GpuRequest) -> tuple[Reason, ...]:
    """Why this fleet can never serve the request; empty if it may some day.

    An unsettled fleet rules nothing out.
    """
    if not fleet.settled:
        return ()
    if fleet.is_empty:
        return (NO_GPUS,)
    usable = {
        node_id: sum(can_ever_serve(device, request) for device in devices)
        for node_id, devices in fleet.nodes.items()
    }
    if max(usable.values()) >= request.gpus:
        return ()
    return tuple(_impossible(fleet, request, usable))


def blocking_reasons(look: Look, request: GpuRequest) -> tuple[Reason, ...]:
    """Every reason, device by device and node by node; empty exactly if `place` finds devices."""
    if place(look, request) is not None:
        return ()
    if look.fleet.is_empty:
        return (NO_GPUS,)
    return tuple(
        reason
        for node_id, devices in look.fleet.nodes.items()
        for reason in _node_reasons(look, node_id, devices, request)
    )


def availability_sentence(request: GpuRequest, reasons: Sequence[Reason], node_id: NodeId) -> str:
    """The answer to "could it be granted now?"; `node_id` is where, if `reasons` is empty."""
    if not reasons:
        return f"{_gpus(request.gpus)} available on {node_id}"
    return f"{_gpus(request.gpus)} not available: {_digest(reasons)}"


def summary_sentence(
    state: ReservationState,
    request: GpuRequest,
    reasons: Sequence[Reason],
    position: int | None,
    length: int,
) -> str:
    """A reservation's situation in one sentence."""
    if state is not ReservationState.QUEUED or position is None:
        return f"{state.value}: {_digest(reasons)}" if reasons else state.value
    return f"queued at {position} of {length} for {_gpus(request.gpus)}: {_digest(reasons)}"


def _impossible(fleet: Fleet, request: GpuRequest, usable: dict[NodeId, int]) -> Iterator[Reason]:
    largest = max(usable, key=lambda node_id: usable[node_id])
    yield Reason(
        code=ReasonCode.EXCEEDS_LARGEST_NODE,
        message=(
            f"{_gpus(request.gpus)} of one node asked for, no node has more than "
            f"{usable[largest]} that match"
        ),
        node_id=largest if usable[largest] else None,
    )
    for devices in fleet.nodes.values():
        for device in devices:
            for code in blocks(device, request):
                if code in NEVER:
                    yield reason_for(code, device, request)


def _node_reasons(
    look: Look, node_id: NodeId, devices: Sequence[Device], request: GpuRequest
) -> Iterator[Reason]:
    if not devices:
        return
    for device in devices:
        for code in blocks(device, request):
            yield reason_for(code, device, request)
        if device.number in look.claimed and can_ever_serve(device, request):
            yield Reason(
                code=ReasonCode.BEHIND_IN_QUEUE,
                message=(
                    f"GPU {device.index} on {node_id} is kept for reservation "
                    f"{look.claimed[device.number]}, which is ahead in the queue"
                ),
                node_id=node_id,
                device_uuid=device.uuid,
            )
    free = eligible(look, devices, request)
    if len(free) < request.gpus:
        yield Reason(
            code=ReasonCode.TOO_FEW_DEVICES,
            message=f"{node_id} has {len(free)} of {_gpus(request.gpus)} asked for",
            node_id=node_id,
        )
    elif choose(free, request) is None:
        yield Reason(
            code=ReasonCode.MEMORY_UNBALANCED,
            message=(
                f"{node_id} has no {_gpus(request.gpus)} of which the smallest free memory is at "
                f"least {BALANCED_SHARE:.0%} of the largest"
            ),
            node_id=node_id,
        )


def _digest(reasons: Sequence[Reason]) -> str:
    if len(reasons) == 1:
        return reasons[0].message
    codes = Counter(reason.code for reason in reasons)
    return ", ".join(f"{code.value} x{count}" for code, count in codes.most_common())


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
