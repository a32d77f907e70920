"""What a GPU in MIG mode is divided into, and what it may be.

By the driver's own table: nvmlDeviceGetGpuInstanceProfileInfo and
nvmlDeviceGetGpuInstancePossiblePlacements ("Multi Instance GPU Management" of NVML's reference). A
profile has two numbers: one in the order of the headers, by which it is looked up, and an id of
this GPU, which everything else takes.
"""

import re
from collections.abc import Iterator, Sequence
from ctypes import byref, c_uint
from typing import Any, Final

import pynvml

from schemas.gpus.mig import MigInstance, MigLayout, MigOption
from schemas.telemetry.readings import DeviceFacts
from services.telemetry.domain.mig_profiles import mig_profile
from services.telemetry.sources.nvml.child.calls import Handle, try_call

_NAME: Final = re.compile(r"\d+g\.\d+gb(?:\+\w+)*")


def mig_layout(handle: Handle, devices: Sequence[DeviceFacts]) -> MigLayout | None:
    """Return the layout; None where the driver does not report all of it: unknown room is not free.

    Raises GpuLostError, and NVMLError when NVML as a whole does not work.
    """
    options, instances = [], []
    for info, profile in profiles(handle):
        places = placements(handle, info.id)
        handles = gpu_instances(handle, info)
        if places is None or handles is None:
            return None
        for instance in handles:
            instance_info = try_call(pynvml.nvmlGpuInstanceGetInfo, instance)
            if instance_info is None:
                return None
            instances.append(
                MigInstance(
                    profile=profile,
                    start=instance_info.placement.start,
                    size=instance_info.placement.size,
                    device_uuids=tuple(
                        facts.uuid for facts in devices if facts.gpu_instance_id == instance_info.id
                    ),
                )
            )
        if places:
            options.append(
                MigOption(
                    profile=profile,
                    size=places[0].size,
                    starts=tuple(sorted(place.start for place in places)),
                    limit=info.instanceCount,
                    memory_mb=info.memorySizeMB,
                )
            )
    instances.sort(key=lambda instance: instance.start)
    return MigLayout(options=tuple(options), instances=tuple(instances))


def profiles(handle: Handle) -> Iterator[tuple[Any, str]]:
    """Yield the GPU's profiles with their names."""
    memory = try_call(pynvml.nvmlDeviceGetMemoryInfo, handle)
    names_seen: set[str] = set()  # without names a variant looks like the profile that it is of
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = try_call(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number)
        text = info.name if info is not None else ""
        if info is None:  # an older driver does not name them
            info = try_call(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 1)
        if info is None:
            continue
        match = _NAME.search(text)
        profile = (
            match.group()
            if match is not None
            else mig_profile(
                None,
                gpu_slices=info.sliceCount,
                compute_slices=info.sliceCount,
                memory_mb=info.memorySizeMB,
                parent_memory_mb=memory.total >> 20 if memory is not None else None,
            )
        )
        if profile is not None and profile not in names_seen:
            names_seen.add(profile)
            yield info, profile


def gpu_instances(handle: Handle, info: Any) -> list[Handle] | None:
    """Return the instances of one profile; None where the driver does not report them."""
    instances = (pynvml.c_nvmlGpuInstance_t * max(1, info.instanceCount))()
    count = c_uint(len(instances))
    if try_call(pynvml.nvmlDeviceGetGpuInstances, handle, info.id, instances, byref(count)) is None:
        return None
    return list(instances[: count.value])


def placements(handle: Handle, profile_id: int) -> list[Any] | None:
    """Return where instances of a profile may begin; None where the driver does not report it."""
    count = c_uint(0)
    call = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    if try_call(call, handle, profile_id, None, byref(count)) is None:
        return None
    places = (pynvml.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
    if try_call(call, handle, profile_id, places, byref(count)) is None:
        return None
    return list(places[: count.value])
