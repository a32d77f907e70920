"""Which devices may serve a request now, which never can, and why not."""

from collections.abc import Iterator
from datetime import UTC
from typing import Final

from schemas.gpus.device_grant import ShareKind
from schemas.gpus.gpu_request import WHOLE, GpuRequest
from schemas.scheduler.devices import CordonCause, DeviceState
from schemas.scheduler.reasons import EXCLUDED_BY_REQUEST, REASON_MEANINGS, Reason, ReasonCode
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import (
    NO_HOST_RESOURCES,
    Device,
    Host,
    HostResources,
    Node,
    ReadingState,
)
from services.scheduler.domain.placement.gpu_models import is_same_model, model_of
from services.scheduler.domain.placement.mig_options import to_be_made
from services.scheduler.domain.placement.selectors import describe, mismatch
from services.scheduler.domain.placement.shares import hundredths_of, least_free
from shared.accelerator_rules.compute_capability import (
    capability,
    capability_by_name,
    capability_text,
    has_capability,
)
from shared.accelerator_rules.precision import hint_for
from shared.gpu.free_memory import min_free_mb
from shared.gpu.model_names import matches_model
from shared.gpu.shares import MPS_LABEL, MPS_OF_EACH_GPU, MPS_OF_HOST

WITHOUT_WISHES: Final = GpuRequest()

_READING_REASONS: Final = {
    ReadingState.ABSENT: ReasonCode.NO_READING,
    ReadingState.STALE: ReasonCode.STALE_READING,
    ReadingState.AWAITING: ReasonCode.AWAITING_SNAPSHOT,
}
_SETTERS: Final = {
    CordonCause.OPERATOR: "an operator",
    CordonCause.FAULT: "a fault",
    CordonCause.GPU_LOST: "the GPU's loss",
    CordonCause.NODE_LOST: "the node's silence",
    CordonCause.MIG: "the scheduler",
    CordonCause.RESTORED: "a restore",
}
_PLAIN: Final = {
    ReasonCode.CORDONED: "is cordoned",
    ReasonCode.NO_READING: "has no reading: its agent has not sent one yet, or has stopped",
    ReasonCode.STALE_READING: "has no recent reading; its agent is silent",
    ReasonCode.AWAITING_SNAPSHOT: "was just released; its first reading since is under way",
    ReasonCode.UTILIZATION_UNKNOWN: "reports no utilization",
    ReasonCode.MEMORY_UNKNOWN: "reports no memory",
    ReasonCode.MIG_ENABLED: "is divided into MIG instances, which are granted instead of it",
    ReasonCode.NODE_LOST: "is on a node that is lost",
    ReasonCode.NOT_DIVISIBLE: "is a MIG instance, which is granted as a whole",
    ReasonCode.MPS_PER_GPU: "has an MPS daemon of its own, and a client connects to one: ask for"
    " at most 1.00",
    ReasonCode.SHARES_NOT_ENFORCED: f"is on a node without label {MPS_LABEL}=true, which an MPS"
    " daemon that listens there gives it: nothing keeps holders to their shares",
}


def share_kind(device: Device, node: Node) -> ShareKind:
    """Return what enforces the shares of the device's holders."""
    is_mps = node.labels.get(MPS_LABEL) in {MPS_OF_HOST, MPS_OF_EACH_GPU} and not device.simulated
    return ShareKind.MPS if is_mps else ShareKind.COOPERATIVE


def is_of_one_gpu(node: Node) -> bool:
    """True if parts of several GPUs of the node have no MPS daemon in common."""
    return node.labels.get(MPS_LABEL) == MPS_OF_EACH_GPU


def can_ever_serve(device: Device, request: GpuRequest, node: Node) -> bool:
    """True if what never changes matches: the device's identity, model and total memory, its node.

    For a GPU that may be divided: whether the instance would match.
    """
    device = to_be_made(device, request) or device
    return next(_mismatches(device, request, node), None) is None


def is_eligible(device: Device, request: GpuRequest, node: Node) -> bool:
    """True if the device may be granted to this request now, apart from the queue."""
    return next(blocks(device, request, node), None) is None


def blocks(device: Device, request: GpuRequest, node: Node) -> Iterator[ReasonCode]:
    """Yield every reason why this device does not serve this request now; each code once.

    A held device's reading shows its holder's use, so only that of a free one counts.
    """
    made = to_be_made(device, request)
    yield from dict.fromkeys(_mismatches(made or device, request, node))
    if not node.admitted:
        yield ReasonCode.NOT_ADMITTED
    if node.cluster is not None:
        yield ReasonCode.GIVEN_OUT_BY_CLUSTER
    if node.lost:
        yield ReasonCode.NODE_LOST
    if device.foreign_pids:
        yield ReasonCode.FOREIGN_PROCESS
    if device.unlisted_mb is not None:
        yield ReasonCode.PROCESSES_UNKNOWN
    if device.health is not HealthState.OK:
        yield ReasonCode.UNHEALTHY
    if device.cordoned:
        yield ReasonCode.CORDONED
    yield from _use_blocks(device, request) if made is None else (ReasonCode.MIG_NOT_MADE,)


def _use_blocks(device: Device, request: GpuRequest) -> Iterator[ReasonCode]:
    if device.quarantined:
        yield ReasonCode.QUARANTINED
    elif device.parts and request.shares is not None:
        yield from _share_blocks(device, request)
    elif device.holder is not None:
        yield ReasonCode.HELD
    else:
        yield from _foreign_use(device, request)


def _share_blocks(device: Device, request: GpuRequest) -> Iterator[ReasonCode]:
    """Yield what blocks a shared device: its reading shows the holders' use, so only its age
    counts.
    """
    if device.reading_state is not ReadingState.FRESH:
        yield _READING_REASONS[device.reading_state]
    if device.free_hundredths < least_free(request):
        yield ReasonCode.INSUFFICIENT_SHARES


def state_of(device: Device, node: Node) -> DeviceState:
    """Return the device's state by the rules of grants; a quarantine outweighs the rest."""
    if device.quarantined:
        return DeviceState.QUARANTINED
    if device.holder is not None:
        return DeviceState.HELD
    if device.cordoned:
        return DeviceState.CORDONED
    is_free = is_eligible(device, _for_itself(device), node)
    return DeviceState.FREE if is_free else DeviceState.UNAVAILABLE


def state_reasons(device: Device, node: Node) -> tuple[Reason, ...]:
    """Return why the device would not be granted to a request without conditions, other than its
    holder.

    The sentences leave out their subject, the device.
    """
    request = _for_itself(device)
    return tuple(
        Reason(code=code, message=_predicate(code, device, request, node))
        for code in blocks(device, request, node)
        if code is not ReasonCode.HELD
    )


def _for_itself(device: Device) -> GpuRequest:
    """A request without conditions, but for the device's kind."""
    if device.parent_uuid is None:
        return WITHOUT_WISHES
    return GpuRequest(device_uuids=(device.uuid,))


def host_blocks(
    host: Host, request: GpuRequest, host_reserved: HostResources
) -> Iterator[ReasonCode]:
    """Yield why the node's CPUs and memory do not suffice beside what is held and reserved.

    An unknown capacity suffices for no request that needs any.
    """
    node, in_use = host.node, host.held_resources.plus(host_reserved)
    if request.cpu_count and (
        node.cpu_count is None or node.cpu_count - in_use.cpu_count < request.cpu_count
    ):
        yield ReasonCode.INSUFFICIENT_CPU
    if request.host_memory_mb:
        total = node.memory_total_mb
        if total is None or total - in_use.memory_mb < request.host_memory_mb:
            yield ReasonCode.INSUFFICIENT_HOST_MEMORY


def is_large_enough(node: Node, request: GpuRequest) -> bool:
    """True if the node would have the CPUs and memory if nothing of it were held."""
    return next(host_blocks(Host(node=node), request, NO_HOST_RESOURCES), None) is None


def reason_for(code: ReasonCode, device: Device, request: GpuRequest, node: Node) -> Reason:
    """A device's reason with a sentence of what was expected and what is."""
    predicate = _predicate(code, device, request, node)
    return Reason(
        code=code,
        message=f"GPU {device.index} on {device.node_id} {predicate}",
        node_id=device.node_id,
        device_uuid=device.uuid,
    )


def host_reason(
    code: ReasonCode,
    host: Host,
    request: GpuRequest,
    host_reserved: HostResources = NO_HOST_RESOURCES,
) -> Reason:
    """A node's reason for a code of `host_blocks`."""
    node, in_use = host.node, host.held_resources.plus(host_reserved)
    if code is ReasonCode.INSUFFICIENT_CPU:
        what, needs_text = "CPUs", f"{request.cpu_count or 0:g}"
        free = f"{node.cpu_count - in_use.cpu_count:g}" if node.cpu_count is not None else None
    else:
        what, needs_text = "MB of host memory", str(request.host_memory_mb or 0)
        total = node.memory_total_mb
        free = str(total - in_use.memory_mb) if total is not None else None
    has = f"has {free} {what} free" if free is not None else f"reports no {what}"
    return Reason(
        code=code, message=f"{node.node_id} {has}, {needs_text} are needed", node_id=node.node_id
    )


def _mismatches(device: Device, request: GpuRequest, node: Node) -> Iterator[ReasonCode]:
    yield from _kind_mismatches(device, request, node)
    if request.node_ids and device.node_id not in request.node_ids:
        yield ReasonCode.NODE_MISMATCH
    if request.device_uuids and device.uuid not in request.device_uuids:
        yield ReasonCode.UUID_MISMATCH
    if not (matches_model(device.name, request.gpu_models) and is_same_model(device, request)):
        yield ReasonCode.MODEL_MISMATCH
    total = device.total_mb
    if request.min_memory_mb is not None and total is not None and total < request.min_memory_mb:
        yield ReasonCode.INSUFFICIENT_TOTAL_MEMORY
    if (code := _capability_mismatch(device, request)) is not None:
        yield code
    for selector in request.require:
        if (code := mismatch(selector, device, node)) is not None:
            yield code


def _is_kind_requested(device: Device, request: GpuRequest) -> bool:
    """A whole GPU, or an instance of the profile; an instance may be named instead."""
    if request.mig_profile is not None:
        return device.mig_profile == request.mig_profile
    return device.parent_uuid is None or device.uuid in request.device_uuids


def _kind_mismatches(device: Device, request: GpuRequest, node: Node) -> Iterator[ReasonCode]:
    if device.mig_enabled and device.parent_uuid is None:
        yield ReasonCode.MIG_ENABLED
    elif request.shares is None and not _is_kind_requested(device, request):
        yield ReasonCode.MIG_PROFILE_MISMATCH
    if request.shares is None:
        return
    if device.parent_uuid is not None:
        yield ReasonCode.NOT_DIVISIBLE
    if is_of_one_gpu(node) and hundredths_of(request) > WHOLE:
        yield ReasonCode.MPS_PER_GPU
    if request.enforced_shares and share_kind(device, node) is ShareKind.COOPERATIVE:
        yield ReasonCode.SHARES_NOT_ENFORCED


def _capability_mismatch(device: Device, request: GpuRequest) -> ReasonCode | None:
    needed = capability(request.min_compute_capability)
    if needed is None or not has_capability(device.name):
        return None
    device_capability = capability(device.compute_capability) or capability_by_name(device.name)
    if device_capability is None:
        return ReasonCode.SELECTOR_UNKNOWN
    return ReasonCode.COMPUTE_CAPABILITY_MISMATCH if device_capability < needed else None


def _foreign_use(device: Device, request: GpuRequest) -> Iterator[ReasonCode]:
    if device.reading_state is not ReadingState.FRESH:
        yield _READING_REASONS[device.reading_state]
        return
    reading = device.reading
    if reading is None or reading.utilization_percent is None:
        yield ReasonCode.UTILIZATION_UNKNOWN
    elif reading.utilization_percent > request.max_utilization_percent:
        yield ReasonCode.UTILIZATION_ABOVE_LIMIT
    needed = min_free_mb(request.min_memory_mb, device.total_mb)
    if reading is None or reading.memory_free_mb is None or device.total_mb is None:
        yield ReasonCode.MEMORY_UNKNOWN
    elif needed is not None and reading.memory_free_mb < needed:
        yield ReasonCode.INSUFFICIENT_FREE_MEMORY


def _process_predicate(code: ReasonCode, device: Device) -> str:
    if code is ReasonCode.FOREIGN_PROCESS:
        pids = ", ".join(str(pid) for pid in device.foreign_pids)
        return f"runs processes that no reservation explains ({pids})"
    return (
        f"has {device.unlisted_mb} MB in use, and its processes cannot be listed: they may be "
        "somebody's (setting GPUSTEWARD_SCHEDULER_IDLE_MEMORY_MB)"
    )


def _predicate(code: ReasonCode, device: Device, request: GpuRequest, node: Node) -> str:
    """Say what the device is or lacks, as the rest of a sentence that names it."""
    if code in _PLAIN:
        why = _cordon_text(device) if code is ReasonCode.CORDONED else ""
        return f"{_PLAIN[code]}: {why}" if why else _PLAIN[code]
    if code in EXCLUDED_BY_REQUEST:
        return _mismatch_predicate(code, to_be_made(device, request) or device, request, node)
    if code is ReasonCode.NOT_ADMITTED:
        return f"is on a node that is new: `gpusteward node admit {device.node_id}`"
    if code is ReasonCode.GIVEN_OUT_BY_CLUSTER:
        return f"belongs to Kubernetes cluster {node.cluster}, which gives out its GPUs itself"
    if code in {ReasonCode.FOREIGN_PROCESS, ReasonCode.PROCESSES_UNKNOWN}:
        return _process_predicate(code, device)
    reading = device.reading
    if code is ReasonCode.UTILIZATION_ABOVE_LIMIT and reading is not None:
        limit = request.max_utilization_percent
        return (
            f"is {reading.utilization_percent:.0f} % utilized by others, {limit:.0f} % is the limit"
        )
    if code is ReasonCode.INSUFFICIENT_FREE_MEMORY and reading is not None:
        needed = min_free_mb(request.min_memory_mb, device.total_mb) or 0
        return f"has {reading.memory_free_mb} MB free, {needed:.0f} MB are needed"
    if code in (ReasonCode.HELD, ReasonCode.INSUFFICIENT_SHARES, ReasonCode.MIG_NOT_MADE):
        return _predicate_of_held(code, device, request)
    if code is ReasonCode.QUARANTINED:
        return f"is quarantined until reservation {device.holder} is confirmed stopped"
    return _health_predicate(device) if code is ReasonCode.UNHEALTHY else REASON_MEANINGS[code]


def _health_predicate(device: Device) -> str:
    detail = f" ({device.health_detail})" if device.health_detail else ""
    return f"is {device.health.value}{detail}"


def _predicate_of_held(code: ReasonCode, device: Device, request: GpuRequest) -> str:
    if code is ReasonCode.INSUFFICIENT_SHARES:
        free, needed = device.free_hundredths / WHOLE, least_free(request) / WHOLE
        return f"is shared and has {free:.2f} free, {needed:.2f} is the least to take"
    if code is ReasonCode.MIG_NOT_MADE:
        refusal = device.mig_layout.refusal if device.mig_layout is not None else ""
        refused = f"; its last change was refused: {refusal}" if refusal else ""
        return f"has no {request.mig_profile}, its agent makes one once it has room{refused}"
    sharer_count = len(device.parts) - 1
    beside = f" and {sharer_count} more" if sharer_count > 0 else ""
    return f"is held by reservation {device.holder}{beside}"


def _cordon_text(device: Device) -> str:
    cordon = device.cordon
    if cordon is None:
        return ""
    who = cordon.set_by or _SETTERS[cordon.cause]
    since = f" at {cordon.since_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if cordon.since_at else ""
    reason = f"{cordon.reason}; " if cordon.reason else ""
    return f"{reason}set by {who}{since}, until {cordon.until}"


def _mismatch_predicate(code: ReasonCode, device: Device, request: GpuRequest, node: Node) -> str:
    if code is ReasonCode.MIG_PROFILE_MISMATCH:
        kind = f"MIG instance ({device.mig_profile})" if device.parent_uuid else "whole GPU"
        unit_text = f"an instance {request.mig_profile}" if request.mig_profile else "a whole GPU"
        return f"is a {kind}, not {unit_text}"
    if code is ReasonCode.INSUFFICIENT_TOTAL_MEMORY:
        return f"has {device.total_mb} MB in all, {request.min_memory_mb} MB are needed"
    needed = capability(request.min_compute_capability)
    if needed is not None and _capability_mismatch(device, request) is code:
        device_capability = capability(device.compute_capability) or capability_by_name(device.name)
        has = (
            f"has compute capability {capability_text(device_capability)}"
            if device_capability
            else "does not report its compute capability"
        )
        return f"({device.name}) {has}, {capability_text(needed)} is needed{hint_for(needed)}"
    failed = [s for s in request.require if mismatch(s, device, node) is code]
    if code is ReasonCode.CUDA_DRIVER_MISMATCH and failed:
        unit_text = "; ".join(describe(selector) for selector in failed)
        return (
            f"is on a node whose driver serves CUDA {node.cuda_driver_version}, which is not"
            f" {unit_text}: update its driver, or take an image of an older CUDA"
        )
    if failed:
        verb = "does not report" if code is ReasonCode.SELECTOR_UNKNOWN else "does not match"
        return f"{verb} {'; '.join(describe(selector) for selector in failed)}"
    if code is ReasonCode.NODE_MISMATCH:
        return f"is not on any of the nodes asked for ({', '.join(request.node_ids)})"
    if code is ReasonCode.UUID_MISMATCH:
        return f"({device.uuid}) is none of the devices asked for"
    if not is_same_model(device, request) and (model := request.same_model) is not None:
        return f"is a {model_of(device)}, not a {model.name}, with which it is to be compared"
    return f"is a {device.name}, not any of {', '.join(request.gpu_models)}"
