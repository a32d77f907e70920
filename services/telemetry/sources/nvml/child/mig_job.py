"""Makes and removes MIG instances, in the NVML child."""

from collections import deque
from ctypes import byref, c_uint
from typing import Any, Final

import pynvml

from schemas.errors import ErrorCode
from services.telemetry.sources.nvml.child.calls import (
    GpuLostError,
    Handle,
    raise_if_lost,
    try_call,
)
from services.telemetry.sources.nvml.child.jobs import Job
from services.telemetry.sources.nvml.child.library_state import LibraryState
from services.telemetry.sources.nvml.child.mig import gpu_instances, placements, profiles
from services.telemetry.sources.nvml.protocol import (
    Done,
    MakeMig,
    MigRefused,
    ProbeReply,
    RemoveMig,
)

_REFUSALS: Final = {
    pynvml.NVML_ERROR_NO_PERMISSION: ErrorCode.FORBIDDEN,
    pynvml.NVML_ERROR_NOT_SUPPORTED: ErrorCode.UNSUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: ErrorCode.UNSUPPORTED,
}


class MigJob(Job):
    """One change of one GPU. What is half made, by a child that was killed, is finished."""

    def __init__(self, host: LibraryState, request: MakeMig | RemoveMig) -> None:
        super().__init__(MigRefused(ErrorCode.NOT_FOUND, f"no GPU {request.uuid} answers"))
        self._host = host
        self._request = request
        self.left = deque(
            index
            for index, board in host.boards.items()
            if board.uuid == request.uuid and index not in host.stuck
        )

    def call(self, index: int) -> ProbeReply:
        handle, request = self._host.boards[index].handle, self._request
        try:
            if isinstance(request, MakeMig):
                return _make(handle, request.profile, request.start)
            return _remove(handle, request.start)
        except GpuLostError as error:
            return MigRefused(ErrorCode.UNAVAILABLE, str(error))
        except pynvml.NVMLError as error:
            raise_if_lost(error.value)
            code = _REFUSALS.get(error.value, ErrorCode.CONFLICT)
            return MigRefused(code, f"the driver refuses: {error}")

    def record(self, index: int, result: Any) -> None:
        del index
        self._answer = result


def _make(handle: Handle, profile: str, start: int) -> ProbeReply:
    info = next((candidate for candidate, name in profiles(handle) if name == profile), None)
    if info is None:
        return MigRefused(ErrorCode.NOT_FOUND, f"the driver knows no profile {profile}")
    instance = _at(handle, info, start)
    if instance is None:
        place = pynvml.c_nvmlGpuInstancePlacement_t(start, _size(handle, info, start))
        instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, info.id, byref(place))
    if not _compute_instances(instance):
        try:
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, _whole(instance, info.sliceCount))
        except pynvml.NVMLError:
            # Without one it is of no use and takes room.
            pynvml.nvmlGpuInstanceDestroy(instance)
            raise
    return Done()


def _remove(handle: Handle, start: int) -> ProbeReply:
    for info, _ in profiles(handle):
        instance = _at(handle, info, start)
        if instance is not None:
            for compute_instance in _compute_instances(instance):
                pynvml.nvmlComputeInstanceDestroy(compute_instance)
            pynvml.nvmlGpuInstanceDestroy(instance)
    return Done()


def _at(handle: Handle, info: Any, start: int) -> Handle | None:
    for instance in gpu_instances(handle, info) or ():
        if pynvml.nvmlGpuInstanceGetInfo(instance).placement.start == start:
            return instance
    return None


def _size(handle: Handle, info: Any, start: int) -> int:
    sizes = (place.size for place in placements(handle, info.id) or () if place.start == start)
    return next(sizes, 0)


def _compute_profiles(instance: Handle) -> list[Any]:
    profiles_read = (
        try_call(
            pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo,
            instance,
            number,
            pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
            1,
        )
        for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
    )
    return [profile for profile in profiles_read if profile is not None]


def _whole(instance: Handle, slices: int) -> int:
    """The profile of a compute instance with all slices of its GPU instance."""
    for profile in _compute_profiles(instance):
        if profile.sliceCount == slices:
            return int(profile.id)
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _compute_instances(instance: Handle) -> list[Handle]:
    instances: list[Handle] = []
    for profile in _compute_profiles(instance):
        room = (pynvml.c_nvmlComputeInstance_t * max(1, profile.instanceCount))()
        count = c_uint(len(room))
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, profile.id, room, byref(count))
        instances += room[: count.value]
    return instances
