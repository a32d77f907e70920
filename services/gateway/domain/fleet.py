"""Readings, inventory and ledger of the GPUs as one view."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, convert

from schemas.base import FRESH_INTERVALS
from schemas.executor.attempts import ExecutorReported
from schemas.gateway.views import GpuProcessView, GpuView, NodeView
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.views import AllocationMap, DeviceAllocation, NodeAllocation
from schemas.telemetry.readings import (
    DeviceFacts,
    GpuReading,
    GpuSampled,
    HealthState,
    InventoryReported,
    Source,
)
from services.gateway.domain.pod_views import pod_views
from shared.gpu.scoring import availability_score
from shared.gpu.share_units import shares_per_gpu

REPORTS_WITHIN: Final = timedelta(seconds=90)  # three of the 30 s between a node's reports
DeviceKey = tuple[str, str]
NO_FACTS: Final = DeviceFacts(uuid="", index=0, name="")  # of a device that no inventory has
Processes = tuple[GpuProcessView, ...] | None


class LatestSample(Struct, frozen=True, kw_only=True):
    """A node's last sample and how long ago it came, by a clock that only goes forward."""

    sample: GpuSampled
    age_seconds: float

    @property
    def is_stale(self) -> bool:
        """True if later samples should have come."""
        return self.age_seconds > FRESH_INTERVALS * self.sample.interval_seconds


def gpu_views(
    latest: Mapping[str, LatestSample],
    inventories: Mapping[str, InventoryReported],
    ledger: AllocationMap | None,
) -> list[GpuView]:
    """Return every device of a sample, an inventory or the ledger, by node and index."""
    readings = {
        (node_id, gpu.uuid): (latest_sample, gpu)
        for node_id, latest_sample in latest.items()
        for gpu in latest_sample.sample.gpus
    }
    facts = {
        (node_id, device.uuid): (inventory, device)
        for node_id, inventory in inventories.items()
        for device in inventory.devices
    }
    allocations = {
        (device.node_id, device.uuid): device
        for node in (ledger.nodes if ledger is not None else ())
        for device in node.devices
    }
    views = [
        _gpu_view(key, readings.get(key), facts.get(key), allocations.get(key))
        for key in {*readings, *facts, *allocations}
    ]
    return sorted(views, key=lambda view: (view.node_id, view.index, view.uuid))


def _gpu_view(
    key: DeviceKey,
    reading: tuple[LatestSample, GpuReading] | None,
    inventory_facts: tuple[InventoryReported, DeviceFacts] | None,
    allocation: DeviceAllocation | None,
) -> GpuView:
    inventory, facts = inventory_facts or (None, None)
    sources = [
        source
        for source in (reading[1] if reading else None, facts, allocation)
        if source is not None
    ]
    latest, gpu = reading or (None, GpuReading(uuid=key[1], index=sources[0].index))
    source = latest.sample.source if latest else inventory.source if inventory else Source.NONE
    total_mb = gpu.memory_total_mb
    if total_mb is None and facts is not None:
        total_mb = facts.memory_total_mb
    board = facts or NO_FACTS
    return GpuView(
        node_id=key[0],
        uuid=gpu.uuid,
        index=gpu.index,
        name=next((source.name for source in sources if source.name), "unknown"),
        source=source,
        simulated=source is Source.SIMULATED or bool(allocation and allocation.simulated),
        observed_at=latest.sample.observed_at if latest else None,
        age_seconds=round(latest.age_seconds, 3) if latest else None,
        fresh=latest is not None and not latest.is_stale,
        stale=latest is None or latest.is_stale,
        availability_score=availability_score(
            gpu.utilization_percent, gpu.memory_free_mb, gpu.memory_total_mb
        ),
        processes=convert(gpu.processes, Processes, from_attributes=True),
        pods=pod_views(gpu),
        memory_total_mb=total_mb,
        utilization_percent=gpu.utilization_percent,
        memory_used_mb=gpu.memory_used_mb,
        memory_free_mb=gpu.memory_free_mb,
        temperature_c=gpu.temperature_c,
        power_draw_w=gpu.power_draw_w,
        power_limit_w=gpu.power_limit_w,
        energy_mj=gpu.energy_mj,
        sm_clock_mhz=gpu.sm_clock_mhz,
        memory_clock_mhz=gpu.memory_clock_mhz,
        throttle_reasons=gpu.throttle_reasons,
        performance_state=gpu.performance_state,
        fan_percent=gpu.fan_percent,
        memory_utilization_percent=gpu.memory_utilization_percent,
        encoder_percent=gpu.encoder_percent,
        decoder_percent=gpu.decoder_percent,
        pcie_generation=gpu.pcie_generation,
        pcie_width=gpu.pcie_width,
        ecc_corrected=gpu.ecc_corrected,
        ecc_uncorrected=gpu.ecc_uncorrected,
        remap_pending=gpu.remap_pending,
        remap_failed=gpu.remap_failed,
        health=facts.health if facts else allocation.health if allocation else HealthState.OK,
        health_detail=board.health_detail,
        pci_bus_id=board.pci_bus_id,
        numa_node=board.numa_node,
        mig_enabled=board.mig_enabled,
        mig_profile=board.mig_profile,
        parent_uuid=board.parent_uuid,
        power_limit_min_w=board.power_limit_min_w,
        power_limit_max_w=board.power_limit_max_w,
        recent_faults=board.recent_faults,
        state=allocation.state if allocation else None,
        reservation_id=allocation.reservation_id if allocation else None,
        namespace=allocation.namespace if allocation else None,
        holder=allocation.holder if allocation else None,
        holders=allocation.holders if allocation else (),
        reasons=allocation.reasons if allocation else (),
        cordon=allocation.cordon if allocation else None,
    )


def reading_views(sample: GpuSampled) -> tuple[GpuView, ...]:
    """A sample's devices without the ledger's part."""
    latest = {sample.node_id: LatestSample(sample=sample, age_seconds=0.0)}
    return tuple(gpu_views(latest, {}, None))


def node_views(
    latest: Mapping[str, LatestSample],
    inventories: Mapping[str, InventoryReported],
    executors: Mapping[str, ExecutorReported],
    ledger: AllocationMap | None,
    now: datetime,
) -> list[NodeView]:
    """Return every node with a sample, a report or a place in the ledger, by id."""
    gpus = gpu_views(latest, inventories, ledger)
    ledger_nodes = {node.node_id: node for node in ledger.nodes} if ledger is not None else {}
    return [
        _node_view(
            node_id,
            [gpu for gpu in gpus if gpu.node_id == node_id],
            latest.get(node_id),
            inventories.get(node_id),
            executors.get(node_id),
            ledger_nodes.get(node_id),
            now,
        )
        for node_id in sorted({*latest, *inventories, *executors, *ledger_nodes})
    ]


def _node_view(
    node_id: str,
    gpus: Sequence[GpuView],
    latest: LatestSample | None,
    inventory: InventoryReported | None,
    executor: ExecutorReported | None,
    allocation: NodeAllocation | None,
    now: datetime,
) -> NodeView:
    source = latest.sample.source if latest else inventory.source if inventory else Source.NONE
    # A cluster has no agent; the scheduler knows whether it reports.
    is_cluster = allocation is not None and allocation.source is Source.KUBERNETES
    report_times = [fact.occurred_at for fact in (inventory, executor) if fact is not None]
    if latest is not None:
        report_times.append(latest.sample.observed_at)
    last_seen_at = max(report_times, default=None)
    is_fresh = latest is not None and not latest.is_stale
    if latest is None and source is Source.NONE and last_seen_at is not None:
        # Without a GPU there is nothing to read: its agent and executor only say that they live.
        is_fresh = now - last_seen_at <= REPORTS_WITHIN
    return NodeView(
        node_id=node_id,
        source=Source.KUBERNETES if is_cluster else source,
        simulated=source is Source.SIMULATED or any(gpu.simulated for gpu in gpus),
        fresh=allocation.fresh if is_cluster and allocation else is_fresh,
        gpus_total=len(gpus),
        gpus_free=sum(gpu.state is DeviceState.FREE for gpu in gpus),
        last_seen_at=last_seen_at,
        host=inventory.host if inventory else None,
        labels=allocation.labels if allocation else inventory.labels if inventory else {},
        runtimes=executor.runtimes if executor else (),
        cordon=allocation.cordon if allocation else None,
        reasons=dict(Counter(reason.code for gpu in gpus for reason in gpu.reasons)),
        admitted=allocation.admitted if allocation else True,
    )


def allocation_shares(nodes: Sequence[NodeAllocation]) -> dict[str, str]:
    """Return the held part of each device, "0.00" to "1.00", where its node's shares count GPUs.

    The key is the device's uuid as drivers have it, without the kind before it.
    """
    return {
        device.uuid.removeprefix("GPU-"): (
            f"{device.allocated * shares_per_gpu(node.labels, device.index):.2f}"
        )
        for node in nodes
        for device in node.devices
    }
