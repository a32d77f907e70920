"""What a snapshot of eight GPUs costs, beside other ways to take one, and what an agent costs.

`make bench NAME=telemetry`. Everything runs on the fake NVML with no latency, so that what is
measured is the client: the driver's own time comes on top of every way but nvidia-smi's, alike.
Two processes run on each GPU, each has 18 NVLinks, and the driver has ten new samples of two
metrics at every look. The ways take turns, round after round, and the best round of each counts:
on a host that does other work as well, the short rounds are the ones that it left alone.

The last line is one JSON object. Times of `snapshot_full_over_bare` are processor time, parent and
child together; the others are wall time:

`snapshot_full_over_bare`: over nvidia-ml-py's functions, called for the same fields.
`snapshot_full_over_nvitop`: over `nvitop.Device.as_snapshot()`, which has fewer fields and no
    processes; they come on top of it in the table.
`snapshot_full_over_nvidia_smi`: over one run of a shell script that prints what nvidia-smi would.
`agent_cpu_percent`: of one core, agent and child, reading and publishing once per second.
`agent_rss_mb`: resident memory of agent and child, each counted in full.

gpustat sleeps 0.1 s per GPU to see what processes do, which is most of its time.

Where the host has an NVIDIA driver, all is measured a second time on that, `driver_` before each
name: the GPUs that there are, with whatever runs on them and the driver's own time.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from rich.console import Console
from rich.table import Table

from services.telemetry.sources.nvidia_smi.csv import QUERY_FIELDS
from shared.testing import NatsServer, run_apart, short_directory
from tests.benchmarks.processor_time import cpu_seconds
from tests.support.fakes.nvml import FakeNvml
from tests.support.host_driver import find_host_driver
from tests.support.paths import ROOT

GPUS: Final = 8
PROCESSES_PER_GPU: Final = 2
LINKS: Final = 18
NEW_SAMPLES: Final = 10
ROUNDS: Final = 60
DRIVER_ROUNDS: Final = 15  # a real nvidia-smi takes its time
AGENT_SECONDS: Final = 30.0
START_SECONDS: Final = 30.0
SETTLE_SECONDS: Final = 5.0
NODE: Final = "benchmark"
MEBIBYTE: Final = 1 << 20

# A program that is given the number of snapshots to take, and prints milliseconds for each: by the
# wall, by its own processor time, and by that of its children that live.
_FRAME: Final = """
import sys, time
{setup}
for line in sys.stdin:
    count = int(line)
    child, own, began = child_ms(), time.process_time(), time.perf_counter()
    take(count)
    wall, own, child = time.perf_counter() - began, time.process_time() - own, child_ms() - child
    print(wall / count * 1e3, own / count * 1e3, child / count, flush=True)
"""
_ALONE: Final = "def child_ms(): return 0.0\n"
_OURS: Final = """
import asyncio, os, uvloop
from pathlib import Path
from services.telemetry.sources.nvml.source import NvmlSource

GPUS, PROCESSES_PER_GPU = (int(word) for word in os.environ["BENCHMARK_HOST"].split())
loop = uvloop.new_event_loop()
source = NvmlSource(deadline_seconds=30, open_deadline_seconds=30)
async def begin():
    await source.open()
    await source.inventory()
loop.run_until_complete(begin())

def child_ms():
    tasks = Path(f"/proc/{source.child_pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6

async def snapshots(count):
    for _ in range(count):
        reading = await source.read()
        assert len(reading.gpus) == GPUS
        assert len(reading.gpus[-1].processes) >= PROCESSES_PER_GPU

def take(count):
    loop.run_until_complete(snapshots(count))
"""
_BARE: Final = """
import pynvml as N

N.nvmlInit()
handles = [N.nvmlDeviceGetHandleByIndex(index) for index in range(N.nvmlDeviceGetCount())]
SINCE = {(index, kind): 0 for index in range(len(handles)) for kind in (0, 1)}
ASKED = [
    (N.nvmlDeviceGetUtilizationRates, ()),
    (N.nvmlDeviceGetMemoryInfo, (N.nvmlMemory_v2,)),
    (N.nvmlDeviceGetTemperature, (N.NVML_TEMPERATURE_GPU,)),
    (N.nvmlDeviceGetPowerUsage, ()),
    (N.nvmlDeviceGetEnforcedPowerLimit, ()),
    (N.nvmlDeviceGetTotalEnergyConsumption, ()),
    (N.nvmlDeviceGetClockInfo, (N.NVML_CLOCK_SM,)),
    (N.nvmlDeviceGetClockInfo, (N.NVML_CLOCK_MEM,)),
    (N.nvmlDeviceGetCurrentClocksEventReasons, ()),
    (N.nvmlDeviceGetTotalEccErrors, (N.NVML_MEMORY_ERROR_TYPE_CORRECTED, N.NVML_VOLATILE_ECC)),
    (N.nvmlDeviceGetTotalEccErrors, (N.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, N.NVML_VOLATILE_ECC)),
    (N.nvmlDeviceGetPerformanceState, ()),
    (N.nvmlDeviceGetFanSpeed, ()),
    (N.nvmlDeviceGetEncoderUtilization, ()),
    (N.nvmlDeviceGetDecoderUtilization, ()),
    (N.nvmlDeviceGetCurrPcieLinkGeneration, ()),
    (N.nvmlDeviceGetCurrPcieLinkWidth, ()),
    (N.nvmlDeviceGetRetiredPages, (0,)),
    (N.nvmlDeviceGetRetiredPages, (1,)),
    (N.nvmlDeviceGetRetiredPagesPendingStatus, ()),
    (N.nvmlDeviceGetRemappedRows, ()),
    (N.nvmlDeviceGetMigMode, ()),
    (N.nvmlDeviceGetComputeRunningProcesses, ()),
    (N.nvmlDeviceGetGraphicsRunningProcesses, ()),
    *((N.nvmlDeviceGetNvLinkState, (link,)) for link in range(18)),
]

def take(count):
    for _ in range(count):
        for index, handle in enumerate(handles):
            for function, arguments in ASKED:
                try:
                    function(handle, *arguments)
                except N.NVMLError:
                    pass  # this model does not have it
            for kind in (0, 1):
                try:
                    _, found = N.nvmlDeviceGetSamples(handle, kind, SINCE[index, kind])
                except N.NVMLError:
                    continue  # none since then
                SINCE[index, kind] = found[-1].timeStamp
"""
_NVITOP: Final = """
import nvitop

devices = nvitop.Device.all()

def take(count):
    for _ in range(count):
        for device in devices:
            device.as_snapshot()
"""
_NVITOP_PROCESSES: Final = """
import nvitop

devices = nvitop.Device.all()

def take(count):
    for _ in range(count):
        for device in devices:
            device.as_snapshot()
            nvitop.GpuProcess.take_snapshots(device.processes().values())
"""
_GPUSTAT: Final = """
import gpustat

def take(count):
    for _ in range(count):
        gpustat.new_query()
"""
_NVIDIA_SMI: Final = """
import csv, json, os, subprocess

command = json.loads(os.environ["BENCHMARK_NVIDIA_SMI"])
gpus = int(os.environ["BENCHMARK_HOST"].split()[0])

def take(count):
    for _ in range(count):
        done = subprocess.run(command, capture_output=True, text=True)
        assert len(list(csv.reader(done.stdout.splitlines()))) == gpus
"""
SMI_LINE: Final = (
    "{}, GPU-fa4e0000-0000-0000-0000-00000000000{}, Fake H100, 42, 81559, 1024, 80035, 55, 123.46, "
    "700.00, 1980, 2619, 0x0000000000000005, 3, 1, 0000FFF0:00:0{}.0, 165300000, 9.0, Disabled, "
    "580.00, P0, 30, 17, 11, 12, 4, 8, 2, 1, No, 4, 1, No, No"
)


@dataclass(frozen=True)
class Way:
    """One way to take a snapshot; `per_round` keeps a round short."""

    name: str
    program: str
    per_round: int
    rounds: int = ROUNDS


WAYS: Final = (
    Way("ours: all fields, processes, samples", _OURS, 10),
    Way("nvidia-ml-py's functions, same fields", _ALONE + _BARE, 10),
    Way("nvitop Device.as_snapshot()", _ALONE + _NVITOP, 5),
    Way("nvitop, with process snapshots", _ALONE + _NVITOP_PROCESSES, 1, 10),
    Way("nvidia-smi, CSV parsed", _ALONE + _NVIDIA_SMI, 2),
    Way("gpustat (0.1 s of sleep per GPU)", _ALONE + _GPUSTAT, 1, 2),
)


@dataclass(frozen=True)
class Cost:
    """Milliseconds per snapshot."""

    wall: float
    own: float
    child: float

    @property
    def processor(self) -> float:
        """Of the process and its child."""
        return self.own + self.child


class Subject:
    """A running way."""

    def __init__(self, way: Way, environ: dict[str, str]) -> None:
        self.way = way
        self._rounds: list[Cost] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FRAME.format(setup=way.program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environ,
        )

    def take(self, count: int) -> Cost:
        """Take snapshots, and say what one costs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        wall, own, child = (float(part) for part in self._process.stdout.readline().split())
        return Cost(wall, own, child)

    def round(self, number: int) -> None:
        """Take part in a round, unless this way has had its rounds."""
        if number < self.way.rounds:
            self._rounds.append(self.take(self.way.per_round))

    def cost(self) -> Cost:
        """Of the best round, each kind of time for itself."""
        wall, own, child = (
            min(getattr(one, kind) for one in self._rounds) for kind in ("wall", "own", "child")
        )
        return Cost(wall, own, child)

    def stop(self) -> None:
        """End it; by the end of its input, so that its children end too."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)


@dataclass(frozen=True)
class Host:
    """GPUs to read, and the environment in which NVML and nvidia-smi find them."""

    title: str
    environ: dict[str, str]
    rounds: int = ROUNDS


def driver_host() -> Host | str:
    """The GPUs of this host, or why they cannot be read."""
    driver = find_host_driver()
    if isinstance(driver, str):
        return driver
    query = f"--query-gpu={','.join(QUERY_FIELDS)}"
    command = [driver.nvidia_smi, query, "--format=csv,noheader,nounits"]
    environ = {"BENCHMARK_HOST": f"{driver.gpus} 0", "BENCHMARK_NVIDIA_SMI": json.dumps(command)}
    title = f"snapshot, GPUs of the host's driver: {driver.gpus}"
    return Host(title, {**driver.environ, **environ}, DRIVER_ROUNDS)


@contextmanager
def fake_host(directory: Path) -> Iterator[Host]:
    """Eight GPUs with processes, links and samples."""
    fake = FakeNvml(directory, gpus=GPUS)
    fake.state.sampling = NEW_SAMPLES
    workers = [subprocess.Popen(["sleep", "3600"]) for _ in range(GPUS * PROCESSES_PER_GPU)]
    for place, worker in enumerate(workers):
        fake.run(place % GPUS, worker.pid, 20_000)
    for index in range(0, GPUS, 2):
        fake.link(index, index + 1, count=LINKS)
    script = directory / "nvidia-smi"
    lines = "\n".join(SMI_LINE.format(index, index, index) for index in range(GPUS))
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    script.chmod(0o755)
    try:
        yield Host(
            f"snapshot, GPUs of fake NVML and nvidia-smi (sh, cat): {GPUS}",
            {
                **fake.environ,
                "BENCHMARK_HOST": f"{GPUS} {PROCESSES_PER_GPU}",
                "BENCHMARK_NVIDIA_SMI": json.dumps([str(script)]),
            },
        )
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def measure_snapshots(host: Host, ways: Sequence[Way] = WAYS) -> dict[str, Cost]:
    """Return what a snapshot costs in each way; they take turns, so that a busy moment hits them
    alike.
    """
    with ExitStack() as stack:
        subjects = []
        for way in ways:
            subject = Subject(way, host.environ)
            stack.callback(subject.stop)
            subject.take(way.per_round)
            subjects.append(subject)
        for number in range(host.rounds):
            for subject in subjects:
                subject.round(number)
        return {subject.way.name: subject.cost() for subject in subjects}


@dataclass(frozen=True)
class AgentCost:
    """Of an agent and its child; memory in MiB by process."""

    cpu_percent: float
    resident: dict[str, float]
    proportional: dict[str, float]


def measure_agent(host: Host) -> AgentCost:
    """An agent as a process, at one reading per second, with a server to publish to."""
    with short_directory() as directory:
        server = NatsServer(directory / "nats")
        run_apart(server.start())
        try:
            agent = subprocess.Popen(
                [sys.executable, "-m", "services.telemetry"],
                cwd=ROOT,
                stderr=subprocess.DEVNULL,
                env={
                    **host.environ,
                    "GPUSTEWARD_NATS_URL": server.authenticated_url,
                    "GPUSTEWARD_DATA_DIR": str(directory / "data"),
                    "GPUSTEWARD_NODE_ID": NODE,
                    "GPUSTEWARD_TELEMETRY_SOURCE": "nvml",
                    "GPUSTEWARD_TELEMETRY_METRICS_PORT": "0",
                },
            )
            try:
                return _cost_of(psutil.Process(agent.pid), _child_of(agent))
            finally:
                agent.terminate()
                agent.wait(timeout=20)
        finally:
            run_apart(server.stop())


def _child_of(agent: subprocess.Popen[bytes]) -> psutil.Process:
    """The process that talks to NVML, some seconds after its start."""
    ends_at = time.monotonic() + START_SECONDS
    while not (children := psutil.Process(agent.pid).children()):
        if agent.poll() is not None or time.monotonic() > ends_at:
            raise RuntimeError(f"the agent started no probe within {START_SECONDS:g} s")
        time.sleep(0.1)
    time.sleep(SETTLE_SECONDS)
    return children[0]


def _cost_of(agent: psutil.Process, child: psutil.Process) -> AgentCost:
    processes = {"agent": agent, "NVML child": child}
    before, began = cpu_seconds(agent, child), time.monotonic()
    time.sleep(AGENT_SECONDS)
    used, passed = cpu_seconds(agent, child) - before, time.monotonic() - began
    memory = {name: process.memory_full_info() for name, process in processes.items()}
    return AgentCost(
        100 * used / passed,
        {name: info.rss / MEBIBYTE for name, info in memory.items()},
        {name: info.pss / MEBIBYTE for name, info in memory.items()},
    )


def report(console: Console, host: Host) -> dict[str, float]:
    """Measure, print the tables, and give the ratios."""
    costs, agent = measure_snapshots(host), measure_agent(host)
    ours, bare, nvitop, _, smi, _ = costs.values()
    table = Table(host.title, "wall ms", "CPU ms", "child's", "ours / it, by wall")
    for name, cost in costs.items():
        table.add_row(
            name,
            f"{cost.wall:.2f}",
            f"{cost.processor:.2f}",
            f"{cost.child:.2f}" if cost.child else "",
            f"{ours.wall / cost.wall:.2f}",
        )
    console.print(table)
    sizes = Table(
        "agent at 1 Hz", "RSS MiB", "PSS MiB", title=f"{agent.cpu_percent:.2f} % of a core"
    )
    for name, resident in agent.resident.items():
        sizes.add_row(name, f"{resident:.1f}", f"{agent.proportional[name]:.1f}")
    console.print(sizes)
    return {
        "snapshot_full_over_bare": round(ours.processor / bare.processor, 2),
        "snapshot_full_over_nvitop": round(ours.wall / nvitop.wall, 2),
        "snapshot_full_over_nvidia_smi": round(ours.wall / smi.wall, 2),
        "agent_cpu_percent": round(agent.cpu_percent, 2),
        "agent_rss_mb": round(sum(agent.resident.values()), 1),
    }


def main() -> None:
    """Measure, print the tables, print the JSON line."""
    console = Console(width=100)
    with tempfile.TemporaryDirectory() as directory, fake_host(Path(directory)) as fake:
        result = report(console, fake)
    driver = driver_host()
    if isinstance(driver, str):
        console.print(f"measured on the fake NVML alone: {driver}")
    else:
        result |= {f"driver_{name}": value for name, value in report(console, driver).items()}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
