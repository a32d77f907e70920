"""NVML, initialised, with a handle per device that is kept open."""

from ctypes import byref, c_int

import pynvml

from schemas.telemetry import DeviceFacts, GpuLink
from services.telemetry.container_labels import ContainerLabels
from services.telemetry.nvml_boards import Board, BoardKeeper
from services.telemetry.nvml_events import XidEvents
from services.telemetry.nvml_facts import links_between
from services.telemetry.nvml_library import GpuLostError, function, refused, text
from services.telemetry.probe_protocol import Absent, Done, ProbeReply
from services.telemetry.processes import ProcessTable


class NvmlHost:
    """What is known of this host's GPUs from one request to the next.

    `boards` are those of the last inventory by their index, `stuck` GPUs with a call that hangs,
    since when; `seen` everything that ever was in an inventory.
    """

    def __init__(self, engine_socket: str | None) -> None:
        self.boards: dict[int, Board] = {}
        self.stuck: dict[int, float] = {}
        self.seen: dict[str, DeviceFacts] = {}
        self.someone_is_missing = False
        self.table = ProcessTable(ContainerLabels(engine_socket))
        self.keeper = BoardKeeper(self.table)
        self.events: XidEvents | None = None
        self._links: tuple[tuple[str, ...], tuple[GpuLink, ...]] = ((), ())

    def open(self) -> ProbeReply:
        """Initialise, once."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError_LibraryNotFound as error:
            return Absent(str(error))
        return Done() if pynvml.nvmlDeviceGetCount() else Absent("NVML reports no devices")

    def restart(self) -> None:
        """NVML notices a GPU that came back only when it is initialised again."""
        if self.events is not None:
            self.events.free()
        self.events = None
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        self.boards = {}

    def uuids_at(self, index: int) -> tuple[str, ...]:
        """The devices of a GPU, as far as they are known."""
        board = self.boards.get(index)
        return () if board is None else board.uuids

    def links(self) -> tuple[GpuLink, ...]:
        """How the boards are connected; asked for again when others are there than before."""
        handles = {board.uuid: board.handle for board in self.boards.values()}
        if self._links[0] != tuple(handles):
            try:
                self._links = (tuple(handles), links_between(handles))
            except GpuLostError:
                return ()
        return self._links[1]


def driver_version() -> str | None:
    """The NVIDIA driver's."""
    call = function("nvmlSystemGetDriverVersion")
    return text(lambda _, buffer, size: call(buffer, size), None)


def cuda_driver_version() -> str | None:
    """The newest CUDA that the driver supports, as `13.1`."""
    version = c_int()
    call = function("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
    status = call(byref(version))
    if status:
        refused(status)
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"
