"""A fake NVML library, compiled on the spot, for hosts without a GPU. See nvml.c beside it."""

import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import psutil
import pytest

MEBIBYTE: Final = 1 << 20
DEVICES: Final = 8
RULES: Final = 16
EVENTS: Final = 64
MAGIC: Final = 0x6E766D6C
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
DRIVER_NOT_LOADED: Final = 9
UNKNOWN: Final = 999
XID_EVENT: Final = 8
TOPOLOGY_SINGLE: Final = 10
TOPOLOGY_SYSTEM: Final = 50
SOURCE: Final = Path(__file__).with_suffix(".c")

_NUMBERS: Final = (
    *("lost", "utilization", "memory_utilization", "total", "reserved", "free", "used"),
    *("temperature", "power_mw", "limit_mw", "default_limit_mw", "minimum_limit_mw"),
    *("maximum_limit_mw", "energy_mj", "sm_mhz", "memory_mhz", "throttle", "locked_mhz"),
    *("corrected", "uncorrected", "mig", "performance_state", "fan", "encoder", "decoder"),
    *("numa_node", "pcie_generation", "pcie_width", "pcie_generation_max", "pcie_width_max"),
    *("retired_single", "retired_double", "retired_pending", "remapped_corrected"),
    *("remapped_uncorrected", "remap_pending", "remap_failed"),
    *("link_count", "process_count", "instance_count", "sample_count"),
)


def _numbers(*names: str) -> list[tuple[str, type[ctypes.c_uint64]]]:
    return [(name, ctypes.c_uint64) for name in names]


class Link(ctypes.Structure):
    """One NVLink; `remote` is the index of the GPU at its other end."""

    _fields_ = _numbers("up", "remote")  # read by ctypes


class Running(ctypes.Structure):
    """One process; `graphics` 1 lists it there, `instance` is its GPU instance."""

    _fields_ = _numbers("pid", "memory", "graphics", "instance", "utilization")


class Sample(ctypes.Structure):
    """What the driver sampled by itself."""

    _fields_ = _numbers("at_us", "utilization", "power_mw")


class Instance(ctypes.Structure):
    """One MIG instance; with `whole` it has a compute instance of all its slices."""

    _fields_ = [
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        *_numbers("gpu_instance", "compute_instance", "total", "used", "slices"),
        *_numbers("start", "size", "whole"),
    ]


class Device(ctypes.Structure):
    """One GPU, in NVML's units: bytes, milliwatts, millijoules."""

    _fields_ = [
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("serial", ctypes.c_char * 32),
        *_numbers(*_NUMBERS),
        ("topology", ctypes.c_uint64 * DEVICES),
        ("links", Link * 18),
        ("processes", Running * 4),
        ("instances", Instance * 8),
        ("samples", Sample * 128),
    ]


class Rule(ctypes.Structure):
    """What one function does otherwise; device -1 means every device."""

    _fields_ = [
        ("function", ctypes.c_char * 64),
        ("device", ctypes.c_int64),
        *_numbers("error", "latency_us"),
    ]


class DriverEvent(ctypes.Structure):
    """What an event set hears."""

    _fields_ = _numbers("device", "type", "data")


class State(ctypes.Structure):
    """The whole file. With `serial` a call that waits keeps every other call waiting; `sampling` is
    how many new samples the driver has at every call, whatever the devices say.
    """

    _fields_ = [
        *_numbers("magic", "size", "init_error", "count", "serial", "sampling"),
        *_numbers("throughput_calls", "event_count"),
        ("events", DriverEvent * EVENTS),
        ("devices", Device * DEVICES),
        ("rules", Rule * RULES),
    ]


class FakeNvml:
    """GPUs of a process whose environment has `environ` in it; changes show at its next call."""

    def __init__(self, directory: Path, *, gpus: int = 2) -> None:
        library = directory / "libnvidia-ml.so.1"
        library.write_bytes(_compiled())
        self.environ = {
            **os.environ,
            "LD_LIBRARY_PATH": str(directory),
            "FAKE_NVML_STATE": str(directory / "state.bin"),
        }
        with (directory / "state.bin").open("w+b") as file:
            file.truncate(ctypes.sizeof(State))
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(State))
        self.state = State.from_buffer(self._map)
        self.state.magic, self.state.size = MAGIC, ctypes.sizeof(State)
        self.state.count = gpus
        for index in range(gpus):
            self._fill(index)

    def device(self, index: int) -> Device:
        """Set its fields."""
        found: Device = self.state.devices[index]
        return found

    def run(
        self, index: int, pid: int, memory_mb: int, *, graphics: bool = False, instance: int = 0
    ) -> None:
        """A process on a GPU."""
        device = self.device(index)
        device.processes[device.process_count] = Running(
            pid, memory_mb * MEBIBYTE, int(graphics), instance
        )
        device.process_count += 1

    def split(self, index: int, *profiles: str) -> None:
        """MIG mode with instances such as 3g.40gb; none leaves the mode without instances."""
        device = self.device(index)
        device.mig, device.instance_count = 1, len(profiles)
        start = 0
        for place, profile in enumerate(profiles):
            slices, memory_gb = profile.removesuffix("gb").split("g.")
            size = max(1, int(memory_gb) // 10)
            start = -(-start // size) * size
            device.instances[place] = Instance(
                f"MIG-fa4e0000-0000-0000-0000-0000000000{index}{place}".encode(),
                f"Fake H100 MIG {profile}".encode(),
                place + 7,
                0,
                int(memory_gb) << 30,
                (place + 1) << 30,
                int(slices),
                start,
                size,
                1,
            )
            start += size

    def sampled(self, index: int, *samples: tuple[int, int, int]) -> None:
        """What the driver sampled meanwhile: microseconds, utilization, milliwatts."""
        device = self.device(index)
        for sample in samples:
            device.samples[device.sample_count] = Sample(*sample)
            device.sample_count += 1

    def link(self, first: int, second: int, *, count: int = 2) -> None:
        """Direct NVLinks between two GPUs, all up."""
        for here, there in ((first, second), (second, first)):
            device = self.device(here)
            for _ in range(count):
                device.links[device.link_count] = Link(1, there)
                device.link_count += 1

    def xid(self, index: int, xid: int) -> None:
        """An XID, as an event."""
        self.state.events[self.state.event_count % EVENTS] = DriverEvent(index, XID_EVENT, xid)
        self.state.event_count += 1

    def rule(
        self, function: str, *, device: int = -1, error: int = 0, latency_seconds: float = 0
    ) -> None:
        """Make a function fail or wait."""
        free = next(rule for rule in self.state.rules if not rule.function)
        free.device, free.error = device, error
        free.latency_us = int(latency_seconds * 1_000_000)
        free.function = function.encode()

    def clear_rules(self) -> None:
        """Everything works again, what waits too."""
        ctypes.memset(ctypes.addressof(self.state.rules), 0, ctypes.sizeof(self.state.rules))

    def _fill(self, index: int) -> None:
        device = self.device(index)
        device.uuid = f"GPU-fa4e0000-0000-0000-0000-00000000000{index}".encode()
        device.name, device.serial = b"Fake H100", f"16530000{index}".encode()
        device.total, device.reserved = 81559 * MEBIBYTE, 500 * MEBIBYTE
        device.used, device.free = 1024 * MEBIBYTE, 80035 * MEBIBYTE
        device.utilization, device.memory_utilization, device.temperature = 42, 17, 55
        device.power_mw, device.limit_mw, device.energy_mj = 123_456, 700_000, 987_654_321
        device.default_limit_mw = 700_000
        device.minimum_limit_mw, device.maximum_limit_mw = 200_000, 700_000
        device.sm_mhz, device.memory_mhz, device.throttle = 1980, 2619, 0x5
        device.corrected, device.uncorrected = 3, 1
        device.fan, device.encoder, device.decoder = 30, 11, 12
        device.pcie_generation, device.pcie_width = 4, 8
        device.pcie_generation_max, device.pcie_width_max = 5, 16
        device.retired_single, device.retired_double = 2, 1
        device.remapped_corrected, device.remapped_uncorrected = 4, 1
        device.numa_node = index % 2
        device.topology[:] = [TOPOLOGY_SYSTEM] * DEVICES


@cache
def _compiled() -> bytes:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the fake NVML library needs a C compiler, and there is none")
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "libnvidia-ml.so.1"
        options = [
            "-O1",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-Wl,-soname,libnvidia-ml.so.1",
        ]
        subprocess.run([compiler, *options, str(SOURCE), "-o", str(library)], check=True)
        return library.read_bytes()


def nvml_children() -> set[int]:
    """NVML children of this process that are alive."""
    found = set()
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it may end meanwhile
            if any("nvml.child" in word for word in child.cmdline()):  # none of a zombie
                found.add(child.pid)
    return found
