"""The `gpu_info` of an experiment."""

from collections.abc import Sequence
from typing import Final

from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_info import GpuAllocation, GpuInfo, GpuInfoDetail

ALLOCATION_METHOD: Final = "scheduler"


def gpu_info_of(devices: Sequence[DeviceGrant], *, count: int, world_size: int | None) -> GpuInfo:
    """`count` may be known where the devices are not."""
    allocation = GpuAllocation(
        count=count,
        indices=tuple(device.index for device in devices),
        allocation_method=ALLOCATION_METHOD,
        details=tuple(
            GpuInfoDetail(
                index=device.index,
                name=device.name,
                uuid=device.uuid,
                node_id=device.node_id,
                memory_total_mb=device.memory_total_mb,
                availability_score=device.score,
                memory_free_mb=device.memory_free_mb,
                utilization_percent=device.utilization_percent,
            )
            for device in devices
        ),
    )
    return GpuInfo(
        model=devices[0].name if devices else "",
        count=count,
        device_ids=tuple(device.uuid for device in devices),
        indices=allocation.indices,
        allocation_method=allocation.allocation_method,
        simulated=any(device.simulated for device in devices),
        details=allocation.details,
        world_size=world_size,
        gpu_info=allocation,
    )
