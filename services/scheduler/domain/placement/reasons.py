"""Why a request waits or can never be granted, in codes for programs and sentences for people."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import NodeId
from schemas.gpus.gpu_request import WHOLE, GpuRequest
from schemas.scheduler.reason_groups import MAX_DIGEST, digest
from schemas.scheduler.reasons import EXCLUDED_BY_REQUEST, Reason, ReasonCode
from schemas.scheduler.reservations import ReservationState
from services.scheduler.domain.model.fleet import NO_HOST_RESOURCES, Device, Fleet, Host
from services.scheduler.domain.model.namespaces import Quota
from services.scheduler.domain.placement.device_choice import BALANCED_SHARE, Chosen, choose
from services.scheduler.domain.placement.eligibility import (
    blocks,
    can_ever_serve,
    host_blocks,
    host_reason,
    is_large_enough,
    is_of_one_gpu,
    reason_for,
)
from services.scheduler.domain.placement.gpu_models import (
    Model,
    Usable,
    by_model,
    count_alike,
    needs_one_model,
)
from services.scheduler.domain.placement.placement import PlacementContext, eligible, place
from services.scheduler.domain.placement.shares import SharesRefused, devices_needed, divide_for
from shared.gpu.model_names import matches_model

MAX_REASONS: Final = 500
REASONS_PER_CODE: Final = 10
MAX_MESSAGE: Final = 400
LISTED_MODELS: Final = 4
NEVER_FITS: Final = "can never fit on this fleet"
WAIT_TIMED_OUT: Final = "its wait timeout passed"

NO_GPUS = Reason(
    code=ReasonCode.NO_GPUS,
    message="no node of this installation reports a GPU; `--simulate` makes up a fleet to try on",
)


class AbridgedReasons(Struct, frozen=True):
    """The reasons that are shown, and how many of each code are not."""

    reasons: tuple[Reason, ...]
    left_out: dict[ReasonCode, int]


def impossible_reasons(fleet: Fleet, request: GpuRequest) -> tuple[Reason, ...]:
    """Return why this fleet can never serve the request; empty if it may some day.

    An incomplete fleet rules nothing out.
    """
    if not fleet.complete:
        return ()
    if fleet.is_empty:
        return (NO_GPUS,)
    usable = {node_id: _usable(fleet, node_id, request) for node_id in fleet.nodes}
    needed = devices_needed(request)
    able = {
        node_id: usable_on_node.models_with(needed)
        for node_id, usable_on_node in usable.items()
        if len(usable_on_node.positions) >= needed and is_large_enough(fleet.node(node_id), request)
    }
    if needs_one_model(request):
        if count_alike(able.values()) >= request.nodes:
            return ()
    elif len(able) >= request.nodes:
        return ()
    return tuple(_impossible(fleet, request, usable, able))


def blocking_reasons(context: PlacementContext, request: GpuRequest) -> tuple[Reason, ...]:
    """Return every reason, device by device and node by node; empty exactly if `place` finds
    devices.

    Scans the fleet: each device has its own reason, while an index knows only those that suit.
    """
    if place(context, request) is not None:
        return ()
    if context.fleet.is_empty:
        return (NO_GPUS,)
    reasons: list[Reason] = []
    able: list[list[Model]] = []
    for node_id, devices in context.fleet.nodes.items():
        if not devices:
            continue
        reasons += _device_reasons(context, node_id, devices, request)
        free = eligible(context, devices, request)
        of_node = list(_node_reasons(context, node_id, free, request))
        if request.nodes > 1 and not of_node:
            able.append(
                [m for m, same_model in by_model(free).items() if choose(same_model, request)]
            )
        reasons += of_node
    if request.nodes > 1:
        reasons.append(_gang_reason(request, able))
    return tuple(reasons)


def over_quota(quota: Quota, held_hundredths: int, asked_for: int) -> Reason:
    """Say why the namespace may not hold that much more: now, or however little it holds."""
    limit = quota.limit or 0
    which, most = f"namespace {quota.namespace}", f"{limit / WHOLE:g}"
    if asked_for > limit:
        return Reason(
            code=ReasonCode.EXCEEDS_QUOTA,
            message=f"{which} may hold {most} GPUs at most, and this asks for"
            f" {asked_for / WHOLE:g}",
        )
    return Reason(
        code=ReasonCode.OVER_QUOTA,
        message=f"{which} holds {held_hundredths / WHOLE:g} of the {most} GPUs that it may hold;"
        f" this needs {asked_for / WHOLE:g} more",
    )


def abridge(reasons: Sequence[Reason], limit: int = MAX_REASONS) -> AbridgedReasons:
    """Return as many reasons as fit into an answer, in their order, with some of every code.

    What the request itself excludes comes last: it explains least why a request waits.
    """
    reasons = sorted(reasons, key=lambda reason: reason.code in EXCLUDED_BY_REQUEST)
    if len(reasons) <= limit:
        return AbridgedReasons(tuple(map(_shorten, reasons)), {})
    code_counts: Counter[ReasonCode] = Counter()
    kept_positions: set[int] = set()
    for n, reason in enumerate(reasons):
        code_counts[reason.code] += 1
        if code_counts[reason.code] <= REASONS_PER_CODE:
            kept_positions.add(n)
    rest_positions = (n for n in range(len(reasons)) if n not in kept_positions)
    kept_positions.update(next(rest_positions) for _ in range(limit - len(kept_positions)))
    kept = [reasons[n] for n in sorted(kept_positions)]
    omitted = code_counts - Counter(reason.code for reason in kept)
    return AbridgedReasons(tuple(map(_shorten, kept)), dict(omitted))


def availability_sentence(
    request: GpuRequest,
    reasons: Sequence[Reason],
    node_ids: Sequence[NodeId],
    *,
    impossible: bool = False,
) -> str:
    """The answer to "could it be granted now?"; `node_ids` is where, if `reasons` is empty.

    `reasons` are those of `impossible_reasons` if it is `impossible`.
    """
    if not reasons:
        return f"{request_text(request)} available on {_list_nodes(node_ids)}"
    if impossible:
        first = _shorten(reasons[0], MAX_DIGEST)
        return f"{request_text(request)} {NEVER_FITS}: {first.message}"
    return f"{request_text(request)} not available: {digest(reasons)}"


def summary_sentence(
    state: ReservationState,
    request: GpuRequest,
    reasons: Sequence[Reason],
    position: int | None,
    length: int,
) -> str:
    """A reservation's situation in one sentence."""
    if state is not ReservationState.QUEUED or position is None:
        return f"{state.value}: {digest(reasons)}" if reasons else state.value
    return f"queued at {position} of {length} for {request_text(request)}: {digest(reasons)}"


def request_text(request: GpuRequest) -> str:
    """Return the request as part of a sentence."""
    if request.shares is not None:
        return f"{request.shares:.2f} of the GPUs of a node"
    gpus = many(request.gpus, "GPU")
    return gpus if request.nodes == 1 else f"{gpus} on each of {request.nodes} nodes"


def many(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"


def _usable(fleet: Fleet, node_id: NodeId, request: GpuRequest) -> Usable:
    node, devices = fleet.node(node_id), fleet.nodes[node_id]
    positions = (p for p, device in enumerate(devices) if can_ever_serve(device, request, node))
    return Usable.of(devices, tuple(positions))


def _impossible(
    fleet: Fleet,
    request: GpuRequest,
    usable: Mapping[NodeId, Usable],
    able: Mapping[NodeId, Iterable[Model]],
) -> Iterator[Reason]:
    large = len(able)
    counts = {node_id: len(usable_on_node.positions) for node_id, usable_on_node in usable.items()}
    largest = max(counts, key=lambda node_id: counts[node_id])
    excluded = list(_exclusions(fleet, request))
    if counts[largest] < devices_needed(request):
        yield Reason(
            code=ReasonCode.EXCEEDS_LARGEST_NODE,
            message=(
                f"{_of_one_node(request)} asked for, no node has"
                f" {f'more than {counts[largest]}' if counts[largest] else 'any'} that match"
                f"{'' if counts[largest] else f': {_what_there_is(fleet, request, excluded)}'}"
            ),
            node_id=largest if counts[largest] else None,
        )
    elif large >= request.nodes:
        most_alike = count_alike(able.values())
        most = f"no more than {many(most_alike, 'node')}" if most_alike else "no node"
        yield _mixture_reason(request, f"{most} will ever have that")
    elif request.nodes > 1:
        yield Reason(
            code=ReasonCode.TOO_FEW_NODES,
            message=f"{request_text(request)} asked for, no more than {large} will ever have that",
        )
    yield from excluded


def _exclusions(fleet: Fleet, request: GpuRequest) -> Iterator[Reason]:
    """Return what the request itself excludes of devices, and nodes that are too small for it."""
    for node_id, devices in fleet.nodes.items():
        host = Host(node=fleet.node(node_id))
        for device in devices:
            for code in blocks(device, request, host.node):
                if code in EXCLUDED_BY_REQUEST:
                    yield reason_for(code, device, request, host.node)
        if devices:
            for code in host_blocks(host, request, NO_HOST_RESOURCES):
                yield host_reason(code, host, request)


def _what_there_is(fleet: Fleet, request: GpuRequest, excluded: Sequence[Reason]) -> str:
    """Return what the fleet has instead of the nodes or models that nothing in it is."""
    if request.node_ids and not any(node_id in fleet.nodes for node_id in request.node_ids):
        fleet_nodes = _list_nodes(tuple(fleet.nodes))
        return f"there is no node {_list_nodes(request.node_ids)}, but {fleet_nodes}"
    gpus = [
        device for devices in fleet.nodes.values() for device in devices if not device.parent_uuid
    ]
    if any(matches_model(device.name, request.gpu_models) for device in gpus):
        return digest(excluded)
    models = Counter(device.name for device in gpus).most_common()
    has = [f"{count} {name}" for name, count in models[:LISTED_MODELS]]
    if len(models) > LISTED_MODELS:
        has.append(f"{many(len(models) - LISTED_MODELS, 'other model')}")
    return f"no GPU is {' or '.join(request.gpu_models)}, there are {', '.join(has)}"


def _of_one_node(request: GpuRequest) -> str:
    if request.shares is not None:
        return request_text(request)
    return f"{many(request.gpus, 'GPU')} of one node"


def _device_reasons(
    context: PlacementContext, node_id: NodeId, devices: Iterable[Device], request: GpuRequest
) -> Iterator[Reason]:
    node = context.fleet.node(node_id)
    for device in devices:
        for code in blocks(device, request, node):
            yield reason_for(code, device, request, node)
        number = device.number
        if (number in context.optimistic or number in context.promised) and can_ever_serve(
            device, request, node
        ):
            yield _reservation_reason(context, device)


def _reservation_reason(context: PlacementContext, device: Device) -> Reason:
    """A device reserved for an earlier request, to start any time or before this one would end."""
    ahead = context.optimistic.get(device.number)
    code = ReasonCode.BEHIND_IN_QUEUE if ahead is not None else ReasonCode.KEPT_FOR_EARLIER
    whose = ahead if ahead is not None else context.promised[device.number]
    soon = "" if ahead is not None else " and will start on it before this one would be over"
    return Reason(
        code=code,
        message=(
            f"GPU {device.index} on {device.node_id} is kept for reservation {whose}, which is"
            f" ahead in the queue{soon}"
        ),
        node_id=device.node_id,
        device_uuid=device.uuid,
    )


def _node_reasons(
    context: PlacementContext, node_id: NodeId, free: Chosen, request: GpuRequest
) -> Iterator[Reason]:
    groups = sorted(by_model(free).items()) if needs_one_model(request) else [(None, free)]
    if request.shares is not None:
        yield from _share_reasons(context, node_id, free, request)
    elif len(free) < request.gpus:
        yield Reason(
            code=ReasonCode.TOO_FEW_DEVICES,
            message=f"{node_id} has {len(free)} of {many(request.gpus, 'GPU')} asked for",
            node_id=node_id,
        )
    elif all(len(same_model) < request.gpus for _, same_model in groups):
        has = ", ".join(f"{len(same_model)} {model}" for model, same_model in groups)
        yield Reason(
            code=ReasonCode.MIXED_MODELS,
            message=f"{node_id} has {has}, and {many(request.gpus, 'GPU')} {_OF_ONE_MODEL}",
            node_id=node_id,
        )
    elif all(choose(same_model, request) is None for _, same_model in groups):
        yield Reason(
            code=ReasonCode.MEMORY_UNBALANCED,
            message=f"{node_id} has no {many(request.gpus, 'GPU')} {_UNBALANCED}",
            node_id=node_id,
        )
    host = context.fleet.host(node_id)
    host_reserved = context.host_reserved.get(node_id, NO_HOST_RESOURCES)
    for code in host_blocks(host, request, host_reserved):
        yield host_reason(code, host, request, host_reserved)


def _share_reasons(
    context: PlacementContext, node_id: NodeId, free: Chosen, request: GpuRequest
) -> Iterator[Reason]:
    groups = [free] if request.mixed_models else by_model(free).values()
    parts = ([scored.device.free_hundredths for scored in same_model] for same_model in groups)
    amounts = max(parts, key=sum, default=[])
    is_of_one = is_of_one_gpu(context.fleet.node(node_id))
    refused = divide_for(request, amounts, context.share_quantum, of_one_device=is_of_one)
    if not isinstance(refused, SharesRefused):
        return
    has = f"{node_id} has {sum(amounts) / WHOLE:.2f} free"
    if refused is SharesRefused.INSUFFICIENT:
        code, says = ReasonCode.INSUFFICIENT_SHARES, f"{has} of {request.shares:.2f} asked for"
    else:
        code = ReasonCode.SHARES_FRAGMENTED
        why = ": each has an MPS daemon of its own" if is_of_one else " without fragmentation"
        says = f"{has}, on too many devices for {request.shares:.2f}{why}"
    yield Reason(code=code, message=says, node_id=node_id)


def _gang_reason(request: GpuRequest, able: Sequence[Iterable[Model]]) -> Reason:
    if len(able) < request.nodes:
        return Reason(
            code=ReasonCode.TOO_FEW_NODES,
            message=f"{many(len(able), 'node')} of {request.nodes} asked for can be had together"
            " now",
        )
    if needs_one_model(request) and (most_alike := count_alike(able)) < request.nodes:
        return _mixture_reason(request, f"{many(most_alike, 'node')} with the same can be had now")
    gpus = many(request.gpus, "GPU")
    return Reason(
        code=ReasonCode.MEMORY_UNBALANCED,
        message=f"no {many(request.nodes, 'node')} have {gpus} each {_UNBALANCED}",
    )


def _mixture_reason(request: GpuRequest, has: str) -> Reason:
    return Reason(
        code=ReasonCode.MIXED_MODELS,
        message=f"{request_text(request)} {_OF_ONE_MODEL}, and {has}",
    )


def _shorten(reason: Reason, longest: int = MAX_MESSAGE) -> Reason:
    if len(reason.message) <= longest:
        return reason
    return replace(reason, message=f"{reason.message[: longest - 1]}…")


def _list_nodes(node_ids: Sequence[NodeId]) -> str:
    listed = ", ".join(node_ids[:8])
    return listed if len(node_ids) <= 8 else f"{listed} and {len(node_ids) - 8} more nodes"


_OF_ONE_MODEL: Final = "are to be of one model and memory size"
_UNBALANCED: Final = (
    f"of which the smallest free memory is at least {BALANCED_SHARE:.0%} of the largest"
)
