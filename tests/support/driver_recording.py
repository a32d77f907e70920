"""Writes down what a real NVIDIA driver says, for tests on hosts without one.

`python -m tests.support.driver_recording DIRECTORY PROGRAM ...`, where PROGRAM keeps the first GPU
busy until it is ended. Each file names the state of the GPU, `idle` or `busy`. UUIDs and serial
numbers are replaced; nothing is changed on the GPU.

`query-*.csv`, `processes-*.csv`, `topology.txt`, `version.txt`: nvidia-smi, as its source runs it.
`sources-*.json`: inventory and one reading, by NVML and by nvidia-smi.
`calls-*.jsonl`: functions of nvidia-ml-py with their answer or error, and the median of their time.
`load.csv`: a recording that a simulated fleet can replay, a row each half second: idle, busy, idle.
"""

import asyncio
import csv
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pynvml

from services.telemetry.sources.nvidia_smi.csv import QUERY_FIELDS
from services.telemetry.sources.nvidia_smi.processes import PROCESS_FIELDS
from services.telemetry.sources.nvidia_smi.source import NvidiaSmiSource
from services.telemetry.sources.nvidia_smi.topology import ARGUMENTS
from services.telemetry.sources.nvml.source import NvmlSource
from services.telemetry.sources.source import GpuSource

ROW_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 5.0
BUSY_SECONDS: Final = 20.0
LOAD_START_SECONDS: Final = 60.0
TIMES: Final = 25
COLUMNS: Final = (
    "utilization_percent",
    "memory_utilization_percent",
    "memory_used_mb",
    "temperature_c",
    "power_draw_w",
    "energy_mj",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "ecc_corrected",
    "ecc_uncorrected",
)
CALLS: Final[Sequence[tuple[str, *tuple[int, ...]]]] = (
    ("nvmlDeviceGetName",),
    ("nvmlDeviceGetUtilizationRates",),
    ("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2),
    ("nvmlDeviceGetMemoryInfo",),
    ("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
    ("nvmlDeviceGetPowerUsage",),
    ("nvmlDeviceGetEnforcedPowerLimit",),
    ("nvmlDeviceGetPowerManagementDefaultLimit",),
    ("nvmlDeviceGetPowerManagementLimitConstraints",),
    ("nvmlDeviceGetTotalEnergyConsumption",),
    ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
    ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
    ("nvmlDeviceGetCurrentClocksEventReasons",),
    ("nvmlDeviceGetTotalEccErrors", 0, 0),
    ("nvmlDeviceGetTotalEccErrors", 1, 0),
    ("nvmlDeviceGetPerformanceState",),
    ("nvmlDeviceGetFanSpeed",),
    ("nvmlDeviceGetEncoderUtilization",),
    ("nvmlDeviceGetDecoderUtilization",),
    ("nvmlDeviceGetCurrPcieLinkGeneration",),
    ("nvmlDeviceGetCurrPcieLinkWidth",),
    ("nvmlDeviceGetMaxPcieLinkGeneration",),
    ("nvmlDeviceGetMaxPcieLinkWidth",),
    ("nvmlDeviceGetRetiredPages", 0),
    ("nvmlDeviceGetRetiredPages", 1),
    ("nvmlDeviceGetRetiredPagesPendingStatus",),
    ("nvmlDeviceGetRemappedRows",),
    ("nvmlDeviceGetMigMode",),
    ("nvmlDeviceGetMaxMigDeviceCount",),
    ("nvmlDeviceGetNumaNodeId",),
    ("nvmlDeviceGetCudaComputeCapability",),
    ("nvmlDeviceGetComputeRunningProcesses",),
    ("nvmlDeviceGetGraphicsRunningProcesses",),
    ("nvmlDeviceGetNvLinkState", 0),
    ("nvmlDeviceGetNvLinkState", 17),
    ("nvmlDeviceGetSupportedEventTypes",),
    ("nvmlDeviceGetSamples", pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0),
    ("nvmlDeviceGetSamples", pynvml.NVML_TOTAL_POWER_SAMPLES, 0),
)


class Recording:
    """A directory, and what must not be in it."""

    def __init__(self, directory: Path, secrets: dict[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._secrets = directory, secrets

    def write(self, name: str, text: str) -> None:
        for secret, instead in self._secrets.items():
            text = text.replace(secret, instead)
        (self._directory / name).write_text(text)

    def write_json(self, name: str, value: object) -> None:
        self.write(name, msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def smi(*arguments: str) -> str:
    """What nvidia-smi prints."""
    return subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60, check=True
    ).stdout


def answers() -> list[dict[str, Any]]:
    """Of every call, for the first GPU."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    found = []
    for name, *arguments in CALLS:
        took = []
        answer: dict[str, Any] = {}
        for _ in range(TIMES):
            began = time.perf_counter()
            try:
                value = getattr(pynvml, name)(handle, *arguments)
            except pynvml.NVMLError as error:
                value, answer = None, {"error": str(error)}
            took.append(time.perf_counter() - began)
            if value is not None:
                answer = {"value": plain(value)}
        microseconds = round(statistics.median(took) * 1e6, 1)
        found.append({"call": [name, *arguments], **answer, "median_us": microseconds})
    return found


def plain(value: Any) -> object:
    """NVML's structures as tables; long lists by their length and their ends."""
    if isinstance(value, (list, tuple)):
        if len(value) > 6:
            return {"length": len(value), "ends": [plain(value[0]), plain(value[-1])]}
        return [plain(each) for each in value]
    if isinstance(value, (int, float, str)) or value is None:
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    fields = getattr(value, "_fields_", None)
    if fields is not None:
        return {name: plain(getattr(value, name)) for name, *_ in fields}
    return {name: plain(each) for name, each in vars(value).items()}


async def of_source(source: GpuSource) -> object:
    """Its inventory and its second reading: the first only finds the end of the driver's buffer."""
    await source.open()
    try:
        inventory = await source.inventory()
        await source.read()
        await asyncio.sleep(1)
        reading = await source.read()
        return {"inventory": inventory, "gpus": reading.gpus, "lost": reading.lost}
    finally:
        await source.close()


async def record_state(recording: Recording, state: str) -> None:
    recording.write(
        f"query-{state}.csv",
        smi(f"--query-gpu={','.join(QUERY_FIELDS)}", "--format=csv,noheader,nounits"),
    )
    recording.write(
        f"processes-{state}.csv",
        smi(f"--query-compute-apps={','.join(PROCESS_FIELDS)}", "--format=csv,noheader,nounits"),
    )
    lines = (msgspec.json.encode(answer).decode() + "\n" for answer in answers())
    recording.write(f"calls-{state}.jsonl", "".join(lines))
    nvml = NvmlSource(deadline_seconds=20, open_deadline_seconds=45, with_mig_layouts=True)
    taken = {
        "nvml": await of_source(nvml),
        "nvidia-smi": await of_source(NvidiaSmiSource("nvidia-smi", deadline_seconds=20)),
    }
    recording.write_json(f"sources-{state}.json", taken)


async def record_rows(source: GpuSource, began: float, seconds: float) -> list[list[object]]:
    rows: list[list[object]] = []
    ends_at = time.monotonic() + seconds
    while (now := time.monotonic()) < ends_at:
        gpu = (await source.read()).gpus[0]
        rows.append([round(now - began, 2), 0, *(getattr(gpu, name) for name in COLUMNS)])
        await asyncio.sleep(max(0.0, now + ROW_SECONDS - time.monotonic()))
    return rows


async def until_busy(source: GpuSource, load: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(LOAD_START_SECONDS):
        while ((await source.read()).gpus[0].utilization_percent or 0) < 50:
            if load.poll() is not None:
                raise RuntimeError(f"the load ended with exit code {load.returncode}")
            await asyncio.sleep(0.2)


async def main(directory: str, *program: str) -> None:
    pynvml.nvmlInit()
    secrets: dict[str, str] = {}
    for line in smi("--query-gpu=uuid,serial", "--format=csv,noheader").splitlines():
        uuid, serial = line.split(", ")
        secrets[uuid] = f"GPU-{len(secrets):08d}-0000-0000-0000-000000000000"
        if serial.isdecimal() and int(serial):
            secrets[serial] = str(1_650_000_000_000 + len(secrets))
    recording = Recording(Path(directory), secrets)
    recording.write("topology.txt", smi(*ARGUMENTS))
    recording.write("version.txt", smi("--version"))
    await record_state(recording, "idle")

    source = NvmlSource(deadline_seconds=20, open_deadline_seconds=45)
    await source.open()
    await source.inventory()
    began = time.monotonic()
    rows = await record_rows(source, began, IDLE_SECONDS)
    load = subprocess.Popen(program)  # noqa: ASYNC220  # a moment, of a program for one person
    try:
        await until_busy(source, load)
        rows += await record_rows(source, began, BUSY_SECONDS)
        await record_state(recording, "busy")
    finally:
        load.terminate()
        load.wait(timeout=30)
    rows += await record_rows(source, began, IDLE_SECONDS)
    await source.close()
    with (Path(directory) / "load.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["t_seconds", "device", *COLUMNS])
        writer.writerows(["" if cell is None else cell for cell in row] for row in rows)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
