"""The processes on one device."""

from ctypes import byref, c_char, c_uint
from struct import Struct
from typing import Any, Final

import pynvml

from schemas.telemetry import GpuProcess
from services.telemetry.nvml_library import Function, Handle, function, refused
from services.telemetry.processes import ProcessTable

MEBIBYTE: Final = 1 << 20
_ENTRY: Final = Struct("I4xQII")  # nvmlProcessInfo_t: pid, bytes, GPU instance, compute instance
_UNKNOWN: Final = (1 << 64) - 1
_FIRST_ROOM: Final = 32


class RunningProcesses:
    """Compute and graphics processes; one that is both is listed once, with its larger memory."""

    def __init__(self, handle: Handle, table: ProcessTable) -> None:
        self._handle = handle
        self._table = table
        self._lists = [
            function(*(f"nvmlDeviceGet{kind}RunningProcesses_v{number}" for number in (3, 2)))
            for kind in ("Compute", "Graphics")
        ]
        self._count = c_uint()
        self._count_at = byref(self._count)
        self._make_room(_FIRST_ROOM)
        self._raw: bytes | None = None
        self._version = 0
        self._processes: tuple[GpuProcess, ...] = ()

    def now(self) -> tuple[GpuProcess, ...] | None:
        """In the driver's order; None if the compute processes cannot be told.

        Graphics are left out where a device has none, as MIG instances.
        """
        compute, graphics = self._lists
        if not self._ask(compute):
            return None
        raw = bytes(self._filled())
        if self._ask(graphics):
            raw += self._filled()
        if raw != self._raw or self._version != self._table.version:
            self._raw = raw
            self._processes = self._understood(raw)
            self._version = self._table.version
        return self._processes

    def _understood(self, raw: bytes) -> tuple[GpuProcess, ...]:
        found: dict[int, int | None] = {}
        for pid, memory, _, _ in _ENTRY.iter_unpack(raw):
            used = None if memory == _UNKNOWN else memory // MEBIBYTE
            before = found.get(pid)
            found[pid] = used if before is None or (used is not None and used > before) else before
        version = self._table.version
        processes = tuple(self._process(pid, used) for pid, used in found.items())
        if version != self._table.version:
            self._raw = None
        return processes

    def _process(self, pid: int, used_mb: int | None) -> GpuProcess:
        facts = self._table.facts(pid)
        return GpuProcess(pid, facts.name, used_mb, facts.container_id, facts.reservation_id)

    def _ask(self, call: Function) -> bool:
        """Whether the list was given; the room for it grows with what the driver asks for."""
        while True:
            self._count.value = self._room
            status = call(self._handle, self._count_at, self._entries)
            if status != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._make_room(max(self._count.value, self._room) * 2)
        if status:
            refused(status)
        return not status

    def _filled(self) -> memoryview:
        return self._bytes[: self._count.value * _ENTRY.size]

    def _make_room(self, room: int) -> None:
        memory = bytearray(room * _ENTRY.size)
        self._room = room
        self._entries: Any = (c_char * len(memory)).from_buffer(memory)
        self._bytes = memoryview(memory)
