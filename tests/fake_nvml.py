"""A fake NVML library, compiled on the spot, for hosts without a GPU. See tests/fake_nvml.c."""

import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

MEBIBYTE: Final = 1 << 20
DEVICES: Final = 8
RULES: Final = 8
MAGIC: Final = 0x6E766D6C
NOT_SUPPORTED: Final = 3
DRIVER_NOT_LOADED: Final = 9
UNKNOWN: Final = 999
SOURCE: Final = Path(__file__).with_suffix(".c")

_NUMBERS: Final = (
    *("lost", "utilization", "total", "reserved", "free", "used", "temperature"),
    *("power_mw", "limit_mw", "energy_mj", "sm_mhz", "memory_mhz", "throttle"),
    *("corrected", "uncorrected", "mig", "pid", "pid_memory"),
)


class Device(ctypes.Structure):
    """One GPU, in NVML's units: bytes, milliwatts, millijoules."""

    _fields_ = [  # read by ctypes
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        *((name, ctypes.c_uint64) for name in _NUMBERS),
    ]


class Rule(ctypes.Structure):
    """What one function does otherwise; device -1 means every device."""

    _fields_ = [  # read by ctypes
        ("function", ctypes.c_char * 64),
        ("device", ctypes.c_int64),
        ("error", ctypes.c_uint64),
        ("latency_us", ctypes.c_uint64),
    ]


class State(ctypes.Structure):
    """The whole file."""

    _fields_ = [  # read by ctypes
        ("magic", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("init_error", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
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

    def rule(
        self, function: str, *, device: int = -1, error: int = 0, latency_seconds: float = 0
    ) -> None:
        """Make a function fail or wait."""
        free = next(rule for rule in self.state.rules if not rule.function)
        free.device, free.error = device, error
        free.latency_us = int(latency_seconds * 1_000_000)
        free.function = function.encode()

    def clear_rules(self) -> None:
        """Everything works again; what waits goes on."""
        ctypes.memset(ctypes.addressof(self.state.rules), 0, ctypes.sizeof(self.state.rules))

    def _fill(self, index: int) -> None:
        device = self.device(index)
        device.uuid = f"GPU-fa4e0000-0000-0000-0000-00000000000{index}".encode()
        device.name = b"Fake H100"
        device.total, device.reserved = 81559 * MEBIBYTE, 500 * MEBIBYTE
        device.used, device.free = 1024 * MEBIBYTE, 80035 * MEBIBYTE
        device.utilization, device.temperature = 42, 55
        device.power_mw, device.limit_mw, device.energy_mj = 123_456, 700_000, 987_654_321
        device.sm_mhz, device.memory_mhz, device.throttle = 1980, 2619, 0x5
        device.corrected, device.uncorrected = 3, 1


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
