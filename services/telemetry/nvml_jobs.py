"""What the NVML child does for each request, one GPU at a time.

`ask` is the part that may hang and changes nothing that others see; `note` takes what it found.
"""

import time
from collections import deque
from ctypes import c_uint
from typing import Any, Final

import pynvml

from schemas.errors import ErrorCode
from schemas.telemetry import GpuReading
from services.telemetry.nvml_boards import Board
from services.telemetry.nvml_events import XidEvents
from services.telemetry.nvml_host import NvmlHost, cuda_driver_version, driver_version
from services.telemetry.nvml_library import GpuLostError, function, number, numbers
from services.telemetry.ports import Inventory
from services.telemetry.probe_protocol import (
    Cap,
    Capped,
    CapRefused,
    InventoryTaken,
    ProbeReply,
    ReadingTaken,
    TakeInventory,
)

EVENTS: Final = -1  # stands for the event set where GPUs stand by their index
_REFUSALS: Final = {
    pynvml.NVML_ERROR_INVALID_ARGUMENT: ErrorCode.BAD_REQUEST,
    pynvml.NVML_ERROR_NO_PERMISSION: ErrorCode.FORBIDDEN,
    pynvml.NVML_ERROR_NOT_SUPPORTED: ErrorCode.UNSUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: ErrorCode.UNSUPPORTED,
}


class Job:
    """Answers with what is known, without asking any GPU."""

    def __init__(self, answer: ProbeReply) -> None:
        self.left: deque[int] = deque()
        self._answer = answer

    def ask(self, index: int) -> Any:
        """Call the driver. Raises NVMLError when NVML as a whole does not work."""
        raise NotImplementedError(index)

    def note(self, index: int, found: Any) -> None:
        """Keep what `ask` returned."""

    def reply(self) -> ProbeReply:
        """When nothing is left to ask."""
        return self._answer


class TakingInventory(Job):
    """Enumerates anew."""

    def __init__(self, host: NvmlHost, request: TakeInventory) -> None:
        if host.someone_is_missing and not host.stuck:
            host.restart()
        self._host = host
        count = host.keeper.gpu_count = pynvml.nvmlDeviceGetCount()
        wanted = range(count) if request.only is None else (request.only,)
        self.left = deque(
            index for index in wanted if index not in request.skip and index not in host.stuck
        )
        self._found: set[int] = set()
        if host.events is None:
            host.events = XidEvents()

    def ask(self, index: int) -> Board | None:
        """A GPU that does not even say who it is, is not there."""
        try:
            return self._host.keeper.take(index, self._host.boards.get(index))
        except (GpuLostError, pynvml.NVMLError):
            return None

    def note(self, index: int, found: Board | None) -> None:
        """Hold its handle, and listen to it."""
        if found is None:
            return
        self._host.boards[index] = found
        self._found.add(index)
        if self._host.events is not None:
            self._host.events.register(found.uuid, found.handle)

    def reply(self) -> ProbeReply:
        """Every GPU that was taken in; one that hangs as it was before."""
        host = self._host
        for index in host.boards.keys() - self._found - host.stuck.keys():
            del host.boards[index]
        boards = [host.boards[index] for index in sorted(host.boards)]
        host.seen.update({unit.facts.uuid: unit.facts for board in boards for unit in board.units})
        if not host.seen and not host.stuck:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_NOT_FOUND)
        devices = [unit.facts for board in boards for unit in board.units]
        return InventoryTaken(
            Inventory(
                devices=tuple(sorted(devices, key=lambda facts: facts.index)),
                links=host.links() if not host.stuck else (),
                driver_version=driver_version(),
                cuda_driver_version=cuda_driver_version(),
            )
        )


class TakingReading(Job):
    """Reads every board, and hears the event set last."""

    def __init__(self, host: NvmlHost) -> None:
        self._host = host
        self.left = deque(index for index in (*host.boards, EVENTS) if index not in host.stuck)
        self._gpus: list[GpuReading] = []
        self._lost: dict[str, str] = {}
        self._xids: list[tuple[str, int]] = []

    def ask(self, index: int) -> Any:
        """A board's readings, why there are none, or what was heard."""
        if index == EVENTS:
            return self._host.events.heard() if self._host.events is not None else []
        try:
            return self._host.keeper.read(self._host.boards[index])
        except GpuLostError as error:
            return error

    def note(self, index: int, found: Any) -> None:
        """Collect it."""
        if index == EVENTS:
            self._xids = found
            return
        if isinstance(found, GpuLostError):
            self._lost.update(dict.fromkeys(self._host.boards[index].uuids, str(found)))
        else:
            self._gpus += found

    def reply(self) -> ProbeReply:
        """What answered, what did not, and what happened."""
        host = self._host
        whole = sum(facts.parent_uuid is None for facts in host.seen.values())
        host.someone_is_missing = bool(self._lost) or len(host.boards) < whole
        host.table.forget_ended(
            process.pid for gpu in self._gpus for process in gpu.processes or ()
        )
        now = time.monotonic()
        return ReadingTaken(
            gpus=tuple(sorted(self._gpus, key=lambda gpu: gpu.index)),
            lost=self._lost,
            hung={
                uuid: f"a driver call has not returned for {now - since:.1f} s"
                for index, since in host.stuck.items()
                for uuid in host.uuids_at(index)
            },
            xids=tuple(self._xids),
        )


class Capping(Job):
    """Sets a power limit."""

    def __init__(self, host: NvmlHost, request: Cap) -> None:
        super().__init__(CapRefused(ErrorCode.NOT_FOUND, f"no GPU {request.uuid} answers"))
        self._host = host
        self._watts = request.watts
        self.left = deque(
            index
            for index, board in host.boards.items()
            if board.uuid == request.uuid and index not in host.stuck
        )

    def ask(self, index: int) -> ProbeReply:
        """Within what the device allows."""
        try:
            return _capped(self._host.boards[index], self._watts)
        except GpuLostError as error:
            return CapRefused(ErrorCode.UNAVAILABLE, str(error))

    def note(self, index: int, found: Any) -> None:
        """It is the answer."""
        del index
        self._answer = found


def _capped(board: Board, watts: float | None) -> ProbeReply:
    handle = board.handle
    limits = numbers(function("nvmlDeviceGetPowerManagementLimitConstraints"), handle, 2)()
    before = number(function("nvmlDeviceGetPowerManagementLimit"), handle)()
    if watts is None:
        wanted = number(function("nvmlDeviceGetPowerManagementDefaultLimit"), handle)()
    else:
        wanted = round(watts * 1000)
    if limits is None or before is None or wanted is None:
        return CapRefused(ErrorCode.UNSUPPORTED, "the GPU has no power limit to set")
    minimum_w, maximum_w = limits[0] / 1000, limits[1] / 1000
    if not limits[0] <= wanted <= limits[1]:
        detail = f"expected {minimum_w:g} to {maximum_w:g} W, found {wanted / 1000:g} W"
        return CapRefused(ErrorCode.BAD_REQUEST, detail, minimum_w, maximum_w)
    status = function("nvmlDeviceSetPowerManagementLimit")(handle, c_uint(wanted))
    if status:
        code = _REFUSALS.get(status, ErrorCode.UNAVAILABLE)
        return CapRefused(code, str(pynvml.NVMLError(status)), minimum_w, maximum_w)
    return Capped(before / 1000)
