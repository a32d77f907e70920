"""The GPUs of this host as NVML has them, each with its MIG instances."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from schemas.telemetry import DeviceFacts, GpuReading
from services.telemetry.nvml_facts import (
    gpu_facts,
    handle_at,
    instance_facts,
    is_divided,
    mig_handles,
    uuid_of,
)
from services.telemetry.nvml_library import Handle, function, numbers
from services.telemetry.nvml_reading import DeviceReader
from services.telemetry.processes import ProcessTable

INSTANCES_PER_GPU: Final = 8


@dataclass(slots=True)
class Unit:
    """What is reported as a device: a whole GPU, or an instance."""

    facts: DeviceFacts
    reader: DeviceReader


@dataclass(slots=True)
class Board:
    """One GPU. `layout` tells whether its partition changed: its mode, and its instances' names."""

    index: int
    handle: Handle
    gpu: Unit
    ask_mode: Callable[[], list[int] | None]
    instances: list[Unit] = field(default_factory=list)
    layout: tuple[bool | None, tuple[str, ...]] = (None, ())

    @property
    def uuid(self) -> str:
        """The GPU's own."""
        return self.gpu.facts.uuid

    @property
    def units(self) -> list[Unit]:
        """The GPU and its instances."""
        return [self.gpu, *self.instances]

    @property
    def uuids(self) -> tuple[str, ...]:
        """Of the GPU and its instances."""
        return tuple(unit.facts.uuid for unit in self.units)


class BoardKeeper:
    """Makes boards, and keeps their readers as long as they describe the same device."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self.gpu_count = 0

    def take(self, index: int, before: Board | None) -> Board | None:
        """The GPU at an index; None if it cannot say who it is.

        Raises GpuLostError and NVMLError.
        """
        handle = handle_at(index)
        uuid = uuid_of(handle)
        if uuid is None:
            return None
        facts = gpu_facts(uuid, index, handle)
        gpu = Unit(facts, self._reader(facts, handle, before))
        board = Board(index, handle, gpu, numbers(function("nvmlDeviceGetMigMode"), handle, 2))
        self._divide(board, before)
        return board

    def read(self, board: Board) -> list[GpuReading]:
        """Readings of a board's devices, after a look at how it is divided.

        Raises GpuLostError and NVMLError.
        """
        if board.layout[0] is not None:
            mode = is_divided(board.ask_mode())
            if mode != board.layout[0] or (mode and _names(board.handle) != board.layout[1]):
                self._divide(board, board)
        return [unit.reader.read() for unit in board.units]

    def _divide(self, board: Board, before: Board | None) -> None:
        """Look at the instances anew."""
        mode = is_divided(board.ask_mode())
        instances = []
        for place, handle in enumerate(mig_handles(board.handle) if mode else []):
            uuid = uuid_of(handle)
            if uuid is not None:
                index = self.gpu_count + board.index * INSTANCES_PER_GPU + place
                facts = instance_facts(uuid, index, handle, board.gpu.facts)
                instances.append(Unit(facts, self._reader(facts, handle, before)))
        board.instances = instances
        board.layout = (mode, tuple(unit.facts.uuid for unit in instances))

    def _reader(self, facts: DeviceFacts, handle: Handle, before: Board | None) -> DeviceReader:
        for unit in before.units if before is not None else ():
            if unit.facts.uuid == facts.uuid and unit.facts.index == facts.index:
                return unit.reader
        return DeviceReader(facts.uuid, facts.index, facts.name, handle, self._table)


def _names(handle: Handle) -> tuple[str, ...]:
    return tuple(uuid for uuid in map(uuid_of, mig_handles(handle)) if uuid is not None)
