"""What the NVML child does for each request, one GPU at a time.

`call` is the part that may hang, so it changes nothing that another thread sees; `record` takes its
result.
"""

import time
from collections import deque
from operator import attrgetter
from typing import Any, Final

import pynvml
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.telemetry.readings import GpuReading
from services.telemetry.domain.power_range import check_clock
from services.telemetry.sources.nvml.child.boards import Board
from services.telemetry.sources.nvml.child.calls import GpuLostError, Handle, try_call
from services.telemetry.sources.nvml.child.library_state import (
    LibraryState,
    cuda_driver_version,
    driver_version,
)
from services.telemetry.sources.nvml.child.mig import mig_layout
from services.telemetry.sources.nvml.child.xid_events import XidEvents
from services.telemetry.sources.nvml.protocol import (
    CapRefused,
    CapSet,
    Done,
    InventoryTaken,
    LockClock,
    ProbeReply,
    ReadingTaken,
    SetCap,
    TakeInventory,
)
from services.telemetry.sources.source import Inventory
from shared.errors import RefusedError

EVENTS: Final = -1  # stands for the event set where GPUs stand by their index
_REFUSALS: Final = {
    pynvml.NVML_ERROR_INVALID_ARGUMENT: ErrorCode.BAD_REQUEST,
    pynvml.NVML_ERROR_NO_PERMISSION: ErrorCode.FORBIDDEN,
    pynvml.NVML_ERROR_NOT_SUPPORTED: ErrorCode.UNSUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: ErrorCode.UNSUPPORTED,
}


class Job:
    """A reply that needs no GPU."""

    def __init__(self, answer: ProbeReply) -> None:
        self.left: deque[int] = deque()
        self._answer = answer

    def call(self, index: int) -> Any:
        """Call the driver. Raises NVMLError when NVML as a whole does not work."""
        raise NotImplementedError(index)

    def record(self, index: int, result: Any) -> None:
        """Take the result of `call`."""

    def reply(self) -> ProbeReply:
        """Return the reply, once `left` is empty."""
        return self._answer


class InventoryJob(Job):
    """Enumerates anew."""

    def __init__(self, host: LibraryState, request: TakeInventory) -> None:
        if host.gpu_missing and not host.stuck:
            host.restart()
        self._host = host
        self._with_mig_layouts = request.with_mig_layouts
        count = host.board_reader.gpu_count = pynvml.nvmlDeviceGetCount()
        indices = range(count) if request.only is None else (request.only,)
        self.left = deque(
            index for index in indices if index not in request.skip and index not in host.stuck
        )
        self._found: set[int] = set()
        if host.events is None:
            host.events = XidEvents()

    def call(self, index: int) -> Board | None:
        """Read one GPU; None for one that does not give its UUID: it is not present."""
        try:
            board = self._host.board_reader.take(index, self._host.boards.get(index))
            if board is not None and self._with_mig_layouts and board.layout[0]:
                layout = mig_layout(board.handle, [unit.facts for unit in board.instances])
                board.gpu.facts = replace(board.gpu.facts, mig_layout=layout)
        except (GpuLostError, pynvml.NVMLError):
            return None
        return board

    def record(self, index: int, board: Board | None) -> None:
        """Hold its handle, and receive its events."""
        if board is None:
            return
        self._host.boards[index] = board
        self._found.add(index)
        if self._host.events is not None:
            self._host.events.register(board.uuid, board.handle)

    def reply(self) -> ProbeReply:
        """Return every GPU that was found; a hanging one as it was before."""
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


class ReadingJob(Job):
    """Reads every board, and polls the event set last."""

    def __init__(self, host: LibraryState) -> None:
        self._host = host
        self.left = deque(index for index in (*host.boards, EVENTS) if index not in host.stuck)
        self._gpus: list[GpuReading] = []
        self._lost: dict[str, str] = {}
        self._xids: list[tuple[str, int]] = []

    def call(self, index: int) -> Any:
        """A board's readings, or the error in their place; of the event set its XIDs."""
        if index == EVENTS:
            return self._host.events.poll() if self._host.events is not None else []
        try:
            return self._host.board_reader.read(self._host.boards[index])
        except GpuLostError as error:
            return error

    def record(self, index: int, result: Any) -> None:
        if index == EVENTS:
            self._xids = result
            return
        if isinstance(result, GpuLostError):
            self._lost.update(dict.fromkeys(self._host.boards[index].uuids, str(result)))
        else:
            self._gpus += result

    def reply(self) -> ProbeReply:
        host = self._host
        gpu_count = sum(facts.parent_uuid is None for facts in host.seen.values())
        host.gpu_missing = bool(self._lost) or len(host.boards) < gpu_count
        host.table.forget_ended(
            process.pid for gpu in self._gpus for process in gpu.processes or ()
        )
        now = time.monotonic()
        return ReadingTaken(
            gpus=tuple(sorted(self._gpus, key=attrgetter("index"))),
            lost=self._lost,
            hung={
                uuid: f"a driver call has not returned for {now - since:.1f} s"
                for index, since in host.stuck.items()
                for uuid in host.uuids_at(index)
            },
            xids=tuple(self._xids),
        )


class SettingJob(Job):
    """Sets the power limit of one GPU, or locks its clock."""

    def __init__(self, host: LibraryState, request: SetCap | LockClock) -> None:
        super().__init__(CapRefused(ErrorCode.NOT_FOUND, f"no GPU {request.uuid} answers"))
        self._host = host
        self._request = request
        self.left = deque(
            index
            for index, board in host.boards.items()
            if board.uuid == request.uuid and index not in host.stuck
        )

    def call(self, index: int) -> ProbeReply:
        board = self._host.boards[index]
        try:
            match self._request:
                case SetCap(watts=watts):
                    return _set_limit(board.handle, watts)
                case LockClock(mhz=mhz):
                    return _lock_clock(board, mhz)
        except GpuLostError as error:
            return CapRefused(ErrorCode.UNAVAILABLE, str(error))
        except RefusedError as error:
            return CapRefused(error.code, str(error), error.details)

    def record(self, index: int, result: Any) -> None:
        del index
        self._answer = result


def _set_limit(handle: Handle, watts: float | None) -> ProbeReply:
    limits = try_call(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
    limit_before = try_call(pynvml.nvmlDeviceGetPowerManagementLimit, handle)
    if watts is None:
        limit = try_call(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
    else:
        limit = round(watts * 1000)
    if limits is None or limit_before is None or limit is None:
        return CapRefused(ErrorCode.UNSUPPORTED, "the GPU has no power limit to set")
    minimum_w, maximum_w = limits[0] / 1000, limits[1] / 1000
    details = {"minimum_w": minimum_w, "maximum_w": maximum_w}
    if not limits[0] <= limit <= limits[1]:
        detail = f"expected {minimum_w:g} to {maximum_w:g} W, found {limit / 1000:g} W"
        return CapRefused(ErrorCode.BAD_REQUEST, detail, details)
    try:
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, limit)
    except pynvml.NVMLError as error:
        code = _REFUSALS.get(error.value, ErrorCode.UNAVAILABLE)
        return CapRefused(code, str(error), details)
    return CapSet(limit_before / 1000)


def _lock_clock(board: Board, mhz: int | None) -> ProbeReply:
    """Raises RefusedError for a clock that the GPU does not support."""
    supported_mhz = _list_clocks(board.handle) if mhz is not None else []
    check_clock(board.gpu.facts, board.uuid, mhz, supported_mhz)
    try:
        if mhz is None:
            pynvml.nvmlDeviceResetGpuLockedClocks(board.handle)
        else:
            pynvml.nvmlDeviceSetGpuLockedClocks(board.handle, mhz, mhz)
    except pynvml.NVMLError as error:
        return CapRefused(_REFUSALS.get(error.value, ErrorCode.UNAVAILABLE), str(error))
    return Done()


def _list_clocks(handle: Handle) -> list[int]:
    """List the clocks at the fastest memory clock, which is the one under load."""
    memory_mhz = try_call(pynvml.nvmlDeviceGetSupportedMemoryClocks, handle)
    if not memory_mhz:
        return []
    return try_call(pynvml.nvmlDeviceGetSupportedGraphicsClocks, handle, max(memory_mhz)) or []
