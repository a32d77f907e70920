"""What a token sees of the fleet: every GPU, and of who is on it what `Identity` says."""

from uuid import UUID

from msgspec.structs import replace

from schemas.gateway.views import GpuMetrics, GpuProcessView, GpuView
from schemas.scheduler.namespaces import ANOTHER_NAMESPACE
from schemas.scheduler.views import DeviceAllocation, DeviceHolder, Drift, NodeAllocation
from schemas.telemetry.monitoring import GpuDetail
from schemas.telemetry.readings import GpuProcess
from services.gateway.domain.access import Identity

NOBODYS = UUID(int=0)


def visible_gpu(gpu: GpuView, identity: Identity) -> GpuView:
    """Return the GPU with only number and memory of foreign processes, and shares of foreign
    holders.
    """
    if identity.reads_everything:
        return gpu
    own_ids = frozenset(
        holder.reservation_id for holder in gpu.holders if identity.reads(holder.namespace)
    )
    is_own = gpu.reservation_id is not None and identity.reads(gpu.namespace)
    if is_own and gpu.reservation_id is not None:
        own_ids |= {gpu.reservation_id}
    result = replace(
        gpu,
        holders=tuple(_visible_holder(holder, identity) for holder in gpu.holders),
        processes=_visible_processes(gpu.processes, own_ids),
        pods=gpu.pods if own_ids else None,
    )
    if gpu.reservation_id is None or identity.is_told(gpu.namespace):
        return result
    return replace(result, reservation_id=None, namespace=None, holder=ANOTHER_NAMESPACE)


def visible_metrics(metrics: GpuMetrics, identity: Identity) -> GpuMetrics:
    """Readings say nothing of namespaces, so that no process is named."""
    if identity.reads_everything:
        return metrics
    return replace(metrics, gpus=tuple(visible_gpu(gpu, identity) for gpu in metrics.gpus))


def visible_allocation(node: NodeAllocation, identity: Identity) -> NodeAllocation:
    """A node of the ledger's map."""
    if identity.reads_everything:
        return node
    return replace(
        node, devices=tuple(_visible_device(device, identity) for device in node.devices)
    )


def visible_detail(gpu: GpuDetail, identity: Identity) -> GpuDetail:
    """An agent's answer says nothing of namespaces, so that no process is named."""
    if identity.reads_everything or gpu.reading is None:
        return gpu
    processes = gpu.reading.processes
    if processes is not None:
        processes = tuple(
            GpuProcess(pid=process.pid, memory_used_mb=process.memory_used_mb)
            for process in processes
        )
    return replace(gpu, reading=replace(gpu.reading, processes=processes, pods=None))


def visible_drift(drift: Drift, identity: Identity) -> Drift:
    """Return the drift's kind and place; its sentence may name what runs there."""
    if identity.reads_everything:
        return drift
    return replace(drift, detail="", reservation_id=None, pids=())


def _visible_device(device: DeviceAllocation, identity: Identity) -> DeviceAllocation:
    result = replace(
        device, holders=tuple(_visible_holder(holder, identity) for holder in device.holders)
    )
    if device.reservation_id is None or identity.is_told(device.namespace):
        return result
    return replace(result, reservation_id=None, namespace=None, holder=ANOTHER_NAMESPACE)


def _visible_holder(holder: DeviceHolder, identity: Identity) -> DeviceHolder:
    if identity.is_told(holder.namespace):
        return holder
    return DeviceHolder(reservation_id=NOBODYS, shares=holder.shares, holder=ANOTHER_NAMESPACE)


def _visible_processes(
    processes: tuple[GpuProcessView, ...] | None, own_ids: frozenset[UUID]
) -> tuple[GpuProcessView, ...] | None:
    if processes is None:
        return None
    return tuple(
        process
        if process.reservation_id in own_ids
        else GpuProcessView(pid=process.pid, memory_used_mb=process.memory_used_mb)
        for process in processes
    )
