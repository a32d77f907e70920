"""The GPUs of this host as NVML has them, each with its MIG instances."""

from dataclasses import dataclass, field
from typing import Final

import pynvml

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.host.processes import ProcessTable
from services.telemetry.sources.nvml.child.calls import Handle, raise_if_lost
from services.telemetry.sources.nvml.child.facts import (
    gpu_facts,
    instance_facts,
    mig_enabled,
    mig_handles,
    uuid_of,
)
from services.telemetry.sources.nvml.child.reading import DeviceReader

INSTANCES_PER_GPU: Final = 8


@dataclass(slots=True)
class Unit:
    """What is reported as a device: a whole GPU, or an instance."""

    facts: DeviceFacts
    reader: DeviceReader


@dataclass(slots=True)
class Board:
    """One GPU. `layout`, its MIG mode and the UUIDs of its instances, shows when they changed."""

    index: int
    handle: Handle
    gpu: Unit
    instances: list[Unit] = field(default_factory=list)
    layout: tuple[bool | None, tuple[str, ...]] = (None, ())

    @property
    def uuid(self) -> str:
        return self.gpu.facts.uuid

    @property
    def units(self) -> list[Unit]:
        return [self.gpu, *self.instances]

    @property
    def uuids(self) -> tuple[str, ...]:
        """The uuids of the GPU and its instances."""
        return tuple(unit.facts.uuid for unit in self.units)


class BoardReader:
    """Makes boards; a reader is used again as long as it describes the same device."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self.gpu_count = 0

    def take(self, index: int, previous: Board | None) -> Board | None:
        """The GPU at an index; None if it cannot say who it is.

        Raises GpuLostError and NVMLError.
        """
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            raise_if_lost(error.value)
            raise
        uuid = uuid_of(handle)
        if uuid is None:
            return None
        facts = gpu_facts(uuid, index, handle)
        gpu = Unit(facts, self._reader(facts, handle, previous))
        board = Board(index, handle, gpu)
        self._find_instances(board, previous)
        return board

    def read(self, board: Board) -> list[GpuReading]:
        """Readings of a board's devices; its instances are enumerated anew if they changed.

        Raises GpuLostError and NVMLError.
        """
        reading = board.gpu.reader.read()
        mode = board.gpu.reader.mig_enabled
        if mode != board.layout[0] or (mode and _instance_uuids(board.handle) != board.layout[1]):
            self._find_instances(board, board)
        return [reading, *(unit.reader.read() for unit in board.instances)]

    def _find_instances(self, board: Board, previous: Board | None) -> None:
        mode = mig_enabled(board.handle)
        instances = []
        for place, handle in enumerate(mig_handles(board.handle) if mode else []):
            uuid = uuid_of(handle)
            if uuid is not None:
                index = self.gpu_count + board.index * INSTANCES_PER_GPU + place
                facts = instance_facts(uuid, index, handle, board.gpu.facts)
                instances.append(Unit(facts, self._reader(facts, handle, previous)))
        board.instances = instances
        board.layout = (mode, tuple(unit.facts.uuid for unit in instances))

    def _reader(self, facts: DeviceFacts, handle: Handle, previous: Board | None) -> DeviceReader:
        for unit in previous.units if previous is not None else ():
            if unit.facts.uuid == facts.uuid and unit.facts.index == facts.index:
                return unit.reader
        return DeviceReader(facts.uuid, facts.index, facts.name, handle, self._table)


def _instance_uuids(handle: Handle) -> tuple[str, ...]:
    return tuple(uuid for uuid in map(uuid_of, mig_handles(handle)) if uuid is not None)
