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
from services.telemetry.sources.nvml.child.calls import Handle, known

_NAME: Final = re.compile(r"\d+g\.\d+gb(?:\+\w+)*")


def mig_layout(handle: Handle, devices: Sequence[DeviceFacts]) -> MigLayout | None:
    """None where the driver does not report all of it: room that is not known is not free.

    Raises GpuLostError, and NVMLError when NVML as a whole does not work.
    """
    options, instances = [], []
    for info, profile in profiles(handle):
        places = placements(handle, info.id)
        handles = gpu_instances(handle, info)
        if places is None or handles is None:
            return None
        for each in handles:
            found = known(pynvml.nvmlGpuInstanceGetInfo, each)
            if found is None:
                return None
            instances.append(
                MigInstance(
                    profile=profile,
                    start=found.placement.start,
                    size=found.placement.size,
                    device_uuids=tuple(
                        facts.uuid for facts in devices if facts.gpu_instance_id == found.id
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
    instances.sort(key=lambda each: each.start)
    return MigLayout(options=tuple(options), instances=tuple(instances))


def profiles(handle: Handle) -> Iterator[tuple[Any, str]]:
    """Those of the GPU, with their names."""
    memory = known(pynvml.nvmlDeviceGetMemoryInfo, handle)
    seen: set[str] = set()  # without names a variant looks like the profile that it is of
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = known(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number)
        text = info.name if info is not None else ""
        if info is None:  # an older driver does not name them
            info = known(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 1)
        if info is None:
            continue
        named = _NAME.search(text)
        profile = (
            named.group()
            if named is not None
            else mig_profile(
                None,
                gpu_slices=info.sliceCount,
                compute_slices=info.sliceCount,
                memory_mb=info.memorySizeMB,
                parent_memory_mb=memory.total >> 20 if memory is not None else None,
            )
        )
        if profile is not None and profile not in seen:
            seen.add(profile)
            yield info, profile


def gpu_instances(handle: Handle, info: Any) -> list[Handle] | None:
    """Of one profile; None where the driver does not report them."""
    found = (pynvml.c_nvmlGpuInstance_t * max(1, info.instanceCount))()
    count = c_uint(len(found))
    if known(pynvml.nvmlDeviceGetGpuInstances, handle, info.id, found, byref(count)) is None:
        return None
    return list(found[: count.value])


def placements(handle: Handle, profile_id: int) -> list[Any] | None:
    """Where instances of a profile may begin; None where the driver does not report it."""
    count = c_uint(0)
    call = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    if known(call, handle, profile_id, None, byref(count)) is None:
        return None
    found = (pynvml.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
    if known(call, handle, profile_id, found, byref(count)) is None:
        return None
    return list(found[: count.value])
