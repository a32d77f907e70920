"""NVML, initialised, with an open handle per device."""

import pynvml

from schemas.telemetry.readings import DeviceFacts, GpuLink
from services.telemetry.host.container_labels import ContainerLabels
from services.telemetry.host.processes import ProcessTable
from services.telemetry.sources.nvml.child.boards import Board, BoardReader
from services.telemetry.sources.nvml.child.calls import GpuLostError, try_call
from services.telemetry.sources.nvml.child.facts import links_between
from services.telemetry.sources.nvml.child.xid_events import XidEvents
from services.telemetry.sources.nvml.protocol import Absent, Done, ProbeReply


class LibraryState:
    """What the child holds of this host's GPUs from one request to the next.

    `boards` are those of the last inventory by index, `stuck` those with a call that hangs, by the
    time of the call; `seen` is every device of any inventory.
    """

    def __init__(self, engine_socket: str | None) -> None:
        self.boards: dict[int, Board] = {}
        self.stuck: dict[int, float] = {}
        self.seen: dict[str, DeviceFacts] = {}
        self.gpu_missing = False
        self.table = ProcessTable(ContainerLabels(engine_socket))
        self.board_reader = BoardReader(self.table)
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
        """The devices of a GPU; none if it was never enumerated."""
        board = self.boards.get(index)
        return () if board is None else board.uuids

    def links(self) -> tuple[GpuLink, ...]:
        """Return how the boards are connected; read again when the set of boards changed."""
        handles = {board.uuid: board.handle for board in self.boards.values()}
        if self._links[0] != tuple(handles):
            try:
                self._links = (tuple(handles), links_between(handles))
            except GpuLostError:
                return ()
        return self._links[1]


def driver_version() -> str | None:
    return try_call(pynvml.nvmlSystemGetDriverVersion)


def cuda_driver_version() -> str | None:
    """The newest CUDA that the driver supports, as `13.1`."""
    version = try_call(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"
