"""Readings, inventory and ledger of the GPUs as one view."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, convert

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

STALE_INTERVALS: Final = 3.0
REPORTS_WITHIN: Final = timedelta(seconds=90)  # three of the 30 s between a node's reports
READING_FIELDS: Final = (
    "energy_mj",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "throttle_reasons",
    "performance_state",
    "fan_percent",
    "memory_utilization_percent",
    "encoder_percent",
    "decoder_percent",
    "pcie_generation",
    "pcie_width",
    "ecc_corrected",
    "ecc_uncorrected",
    "remap_pending",
    "remap_failed",
)
FACTS_FIELDS: Final = (
    "health_detail",
    "pci_bus_id",
    "numa_node",
    "mig_enabled",
    "mig_profile",
    "parent_uuid",
    "power_limit_min_w",
    "power_limit_max_w",
    "recent_faults",
)
DeviceKey = tuple[str, str]
Processes = tuple[GpuProcessView, ...] | None


class LatestSample(Struct, frozen=True, kw_only=True):
    """A node's last sample and how long ago it came, by a clock that only goes forward."""

    sample: GpuSampled
    age_seconds: float

    @property
    def is_stale(self) -> bool:
        """Whether later ones should have come."""
        return self.age_seconds > STALE_INTERVALS * self.sample.interval_seconds


def gpu_views(
    latest: Mapping[str, LatestSample],
    inventories: Mapping[str, InventoryReported],
    ledger: AllocationMap | None,
) -> list[GpuView]:
    """Every device of a sample, an inventory or the ledger, by node and index."""
    readings = {
        (node_id, gpu.uuid): (found, gpu)
        for node_id, found in latest.items()
        for gpu in found.sample.gpus
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
    known: tuple[InventoryReported, DeviceFacts] | None,
    held: DeviceAllocation | None,
) -> GpuView:
    inventory, facts = known or (None, None)
    found = [each for each in (reading[1] if reading else None, facts, held) if each is not None]
    latest, gpu = reading or (None, GpuReading(uuid=key[1], index=found[0].index))
    source = latest.sample.source if latest else inventory.source if inventory else Source.NONE
    total_mb = gpu.memory_total_mb
    if total_mb is None and facts is not None:
        total_mb = facts.memory_total_mb
    return GpuView(
        node_id=key[0],
        uuid=gpu.uuid,
        index=gpu.index,
        name=next((each.name for each in found if each.name), "unknown"),
        source=source,
        simulated=source is Source.SIMULATED or bool(held and held.simulated),
        health=facts.health if facts else held.health if held else HealthState.OK,
        observed_at=latest.sample.observed_at if latest else None,
        age_seconds=round(latest.age_seconds, 3) if latest else None,
        fresh=latest is not None and not latest.is_stale,
        stale=latest is None or latest.is_stale,
        utilization_percent=gpu.utilization_percent,
        memory_total_mb=total_mb,
        memory_used_mb=gpu.memory_used_mb,
        memory_free_mb=gpu.memory_free_mb,
        temperature_c=gpu.temperature_c,
        power_draw_w=gpu.power_draw_w,
        power_limit_w=gpu.power_limit_w,
        availability_score=availability_score(
            gpu.utilization_percent, gpu.memory_free_mb, gpu.memory_total_mb
        ),
        processes=convert(gpu.processes, Processes, from_attributes=True),
        pods=pod_views(gpu),
        state=held.state if held else None,
        reservation_id=held.reservation_id if held else None,
        namespace=held.namespace if held else None,
        holder=held.holder if held else None,
        holders=held.holders if held else (),
        reasons=held.reasons if held else (),
        cordon=held.cordon if held else None,
        **{name: getattr(gpu, name) for name in READING_FIELDS},
        **({name: getattr(facts, name) for name in FACTS_FIELDS} if facts else {}),
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
    known: NodeAllocation | None,
    now: datetime,
) -> NodeView:
    source = latest.sample.source if latest else inventory.source if inventory else Source.NONE
    # A cluster has no agent; the scheduler knows whether it reports.
    is_cluster = known is not None and known.source is Source.KUBERNETES
    seen = [fact.occurred_at for fact in (inventory, executor) if fact is not None]
    if latest is not None:
        seen.append(latest.sample.observed_at)
    last_seen_at = max(seen, default=None)
    is_fresh = latest is not None and not latest.is_stale
    if latest is None and source is Source.NONE and last_seen_at is not None:
        # Without a GPU there is nothing to read: its agent and executor only say that they live.
        is_fresh = now - last_seen_at <= REPORTS_WITHIN
    return NodeView(
        node_id=node_id,
        source=Source.KUBERNETES if is_cluster else source,
        simulated=source is Source.SIMULATED or any(gpu.simulated for gpu in gpus),
        fresh=known.fresh if is_cluster and known else is_fresh,
        gpus_total=len(gpus),
        gpus_free=sum(gpu.state is DeviceState.FREE for gpu in gpus),
        last_seen_at=last_seen_at,
        host=inventory.host if inventory else None,
        labels=known.labels if known else inventory.labels if inventory else {},
        runtimes=executor.runtimes if executor else (),
        cordon=known.cordon if known else None,
        reasons=dict(Counter(reason.code for gpu in gpus for reason in gpu.reasons)),
        admitted=known.admitted if known else True,
    )


def allocation_shares(nodes: Sequence[NodeAllocation]) -> dict[str, str]:
    """What is held of each device in its node's shares, "0.00" to "1.00" where that is a GPU, by
    its uuid as drivers have it, without the kind before it.
    """
    return {
        device.uuid.removeprefix("GPU-"): (
            f"{device.allocated * shares_per_gpu(node.labels, device.index):.2f}"
        )
        for node in nodes
        for device in node.devices
    }
