"""How large a platform this machine carries, and what ends first.

`make bench NAME=scale`; `python -m tests.benchmarks.scale SECONDS AGENTS` takes other numbers than
ten minutes and 1,000 agents. It reports and never fails a test. `gpusteward up` runs with its own
nats-server and Postgres. Beside it, on the same processors, one process is the agents of all nodes
(`scale_agents`; 8 simulated GPUs each, at 1 Hz), one is 500 people with the page open
(`scale_followers`), and this one holds leases on all nodes but ten and renews them every 10 s,
keeps 5,000 requests waiting, passes a node on every second, and asks twice a second for a free GPU.

The last line is one JSON object: `agents`, `gpus`, `samples_per_s` (stored), `samples_lost` (sent
and not stored), `queue` (waiting requests), `grant_p50_ms`, `grant_p99_ms` (request published to
grant received, a GPU is free), `renew_p99_ms`, `leases_lost` (of those that are renewed),
`commands_unanswered` (within 5 s; sent again), `gateway_clients`, `frames_skipped` (samples that a
client was not sent), `rss_mb_by_service` and `rss_growth_mb_by_service` (over the last three
quarters of the time), `cpu_by_service` (cores), `load_cpu` (cores that the load itself takes),
`saturates_first` (the part that uses most of what it can: one core of a service, all of the
servers), `gb_per_day` (by which the database grew). Then the answers of `scale_questions`.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from schemas.base import node_speaker
from schemas.errors import Accepted
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import RenewReservation, ReservationGranted
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.local_platform.bus_users import BusUsers
from shared.local_platform.embedded import EmbeddedNats
from shared.messaging.bus import Bus
from shared.testing import eventually, short_directory
from shared.waiting import cancel_and_wait
from tests.benchmarks.main import memory_of
from tests.benchmarks.scale_agents import GPUS_PER_NODE, MODEL, PROBE_MODEL, PROBE_NODES, node_names
from tests.benchmarks.scale_questions import AT_ONCE, at_most
from tests.benchmarks.scheduler import Clients, until_known
from tests.support.bus import connected_bus
from tests.support.processes.platform import PlatformProcess, marked_processes

AGENTS: Final = 1000
FOLLOWERS: Final = 500
WAITING: Final = 5000
SECONDS: Final = 600
LOOK_SECONDS: Final = 10.0
PROBE_SECONDS: Final = 0.5
PASS_ON_SECONDS: Final = 1.0
RENEW_SECONDS: Final = 10.0
STOPPED_SECONDS: Final = 60.0
SERVERS: Final = ("nats-server", "postgres")
SECONDS_PER_DAY: Final = 86_400

STORED_TICKS: Final = """
SELECT coalesce(sum(upper(range) - lower(range)), 0)::bigint
FROM results.agent_boot, unnest(seen) AS range WHERE node_id LIKE 'node-%'
"""


class Holders:
    """Whoever holds the nodes: leases are renewed, and passed on to those who wait."""

    def __init__(self, bus: Bus, clients: Clients) -> None:
        self.bus = bus
        self.clients = clients
        self.grants: dict[UUID, ReservationGranted] = {}
        self.waiting: set[UUID] = set()
        self.leases_lost = 0
        self.renew_seconds: list[float] = []
        self.probe_seconds: list[float] = []
        self._following: set[asyncio.Task[None]] = set()

    async def ask(self, request: GpuRequest) -> None:
        reservation_id, grant = self.clients.expect()
        self.waiting.add(reservation_id)

        async def follow() -> None:
            _, granted = await grant
            self.waiting.discard(reservation_id)
            self.grants[reservation_id] = granted

        task = asyncio.create_task(follow())
        self._following.add(task)
        task.add_done_callback(self._following.discard)
        await self.clients.request(reservation_id, request)

    async def keep_renewing(self) -> None:
        """Renew each lease every 10 s, whether or not others have been answered."""
        async with asyncio.TaskGroup() as renewals:
            while True:
                began = time.monotonic()
                grants = list(self.grants.values())
                if not grants:
                    raise RuntimeError("every lease was lost: this machine does not carry the load")
                for number, granted in enumerate(grants):
                    at = began + number * RENEW_SECONDS / len(grants)
                    await asyncio.sleep(at - time.monotonic())
                    if granted.reservation_id in self.grants:
                        renewals.create_task(self._renew(granted))

    async def _renew(self, granted: ReservationGranted) -> None:
        command = RenewReservation(
            command_id=new_id(),
            reservation_id=granted.reservation_id,
            epoch=granted.epoch,
            activate=True,
        )
        began = time.perf_counter()
        try:
            answer = await self.bus.request(command)
        except UnavailableError:
            self.clients.unanswered += 1
            return  # the next one is due before the lease ends
        self.renew_seconds.append(time.perf_counter() - began)
        if not isinstance(answer, Accepted):  # one that was passed on meanwhile is refused
            self.leases_lost += self.grants.pop(granted.reservation_id, None) is not None

    async def keep_passing_on(self, request: GpuRequest) -> None:
        while True:
            await asyncio.sleep(PASS_ON_SECONDS)
            await self.clients.release(self.grants.pop(next(iter(self.grants))))
            await self.ask(request)

    async def keep_probing(self) -> None:
        request = GpuRequest(gpu_models=(PROBE_MODEL,))
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            self.probe_seconds.append(await self.clients.use(request))

    async def close(self) -> None:
        await cancel_and_wait(*self._following)


@asynccontextmanager
async def load(name: str, *arguments: str) -> AsyncIterator[Process]:
    """A process that is a part of the load, once it says that it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"tests.benchmarks.{name}", *arguments, stdout=PIPE
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 300)
        assert line == b"ready\n", line
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def totals_of(process: Process) -> dict[str, int]:
    """End a part of the load; what it has counted."""
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), STOPPED_SECONDS)
    await process.wait()
    totals: dict[str, int] = json.loads(line)
    return totals


class Usage:
    """Memory and processor time of the platform's processes, by service."""

    def __init__(self, platform: PlatformProcess) -> None:
        installation = str(platform.directory.installation_id())
        self._processes: dict[str, list[psutil.Process]] = defaultdict(list)
        assert platform.process is not None
        self._processes["supervisor"].append(psutil.Process(platform.process.pid))
        for name, server in zip(("nats", "postgres"), SERVERS, strict=True):
            if (pid := platform.pid_of(name)) is not None:
                self._processes[server].append(psutil.Process(pid))
        for process in marked_processes(installation):
            if (service := service_of(process)) is not None:
                self._processes[service].append(process)
        self.looks: list[dict[str, float]] = []
        self.counts = {name: len(processes) for name, processes in self._processes.items()}
        self._cpu_before = self.cpu_seconds()
        self._began = time.monotonic()

    def look(self) -> None:
        self.looks.append({name: self._memory_mb(name) for name in self._processes})

    def cores(self) -> dict[str, float]:
        seconds = time.monotonic() - self._began
        now = self.cpu_seconds()
        return {name: round((now[name] - self._cpu_before[name]) / seconds, 3) for name in now}

    def cpu_seconds(self) -> dict[str, float]:
        return {name: sum(map(_cpu, family)) for name, family in self._families().items()}

    def growth_mb(self) -> dict[str, float]:
        """Between the mean of the second quarter and that of the last."""
        quarter = len(self.looks) // 4
        earlier, last = self.looks[quarter : 2 * quarter], self.looks[-quarter:]
        return {name: round(_mean(last, name) - _mean(earlier, name), 1) for name in self.looks[-1]}

    def _families(self) -> dict[str, list[psutil.Process]]:
        return {
            name: [
                member
                for process in processes
                for member in (process, *(process.children(True) if name in SERVERS else ()))
            ]
            for name, processes in self._processes.items()
        }

    def _memory_mb(self, name: str) -> float:
        total = 0.0
        for process in self._families()[name]:
            with suppress(psutil.Error):
                total += memory_of(process).proportional
        return total


def service_of(process: psutil.Process) -> str | None:
    """The name of the service that a process is; None for another."""
    words = [word for word in process.cmdline() if word.startswith("services.")]
    return words[-1].removeprefix("services.") if words else None


def _cpu(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.Error:
        return 0.0


def _mean(looks: list[dict[str, float]], name: str) -> float:
    return statistics.mean(look[name] for look in looks) if looks else 0.0


def percentile_ms(seconds: list[float], percent: int) -> float:
    return round(statistics.quantiles(seconds, n=100)[percent - 1] * 1000, 1)


def saturates_first(cores: Mapping[str, float], processes: Mapping[str, int]) -> str:
    """The part that uses most of what it can, and how much: a process of ours has one core."""
    all_cores = os.cpu_count() or 1
    limits = {name: all_cores if name in SERVERS else processes[name] for name in cores}
    name = max(cores, key=lambda one: cores[one] / limits[one])
    return f"{name}: {cores[name] / limits[name]:.0%}"


async def occupy(holders: Holders, agents: int) -> GpuRequest:
    """Have every node held but those for probes, and a queue behind them."""
    whole_node = GpuRequest(
        gpus=GPUS_PER_NODE, gpu_models=(MODEL,), wait_timeout_seconds=SECONDS_PER_DAY
    )
    nodes = agents - PROBE_NODES
    await at_most(AT_ONCE, (holders.ask(whole_node) for _ in range(nodes)))
    await eventually(lambda: len(holders.grants) == nodes, within_seconds=120, what="held nodes")
    return whole_node


async def measure(directory: Path, seconds: int, agents: int) -> dict[str, Any]:
    platform = PlatformProcess(
        directory / "data", environment={"GPUSTEWARD_SCHEDULER_ADMIT_NODES": "*"}
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(platform.stop)
        await platform.start()
        endpoint = platform.directory.read_endpoint()
        assert endpoint is not None
        assert endpoint.nats_url is not None
        users = platform.directory.nats / "users"
        BusUsers(users).create(map(node_speaker, node_names(agents)))
        assert EmbeddedNats(platform.directory.nats).reload()
        bus = await stack.enter_async_context(
            connected_bus(endpoint.nats_url, "benchmark", str(users / "gateway.json"))
        )
        clients = Clients(bus)
        await clients.hear()
        fleet = await stack.enter_async_context(
            load("scale_agents", endpoint.nats_url, str(users), str(agents))
        )
        say(f"{agents} agents have reported")
        await until_known(bus, agents)
        say("the scheduler knows their GPUs")
        holders = Holders(bus, clients)
        stack.push_async_callback(holders.close)
        whole_node = await occupy(holders, agents)
        say(f"{len(holders.grants)} nodes are held")
        tasks = [asyncio.create_task(holders.keep_renewing())]
        stack.push_async_callback(lambda: cancel_and_wait(*tasks))
        await at_most(AT_ONCE, (holders.ask(whole_node) for _ in range(WAITING)))
        say(f"{len(holders.waiting)} requests wait")
        people = await stack.enter_async_context(
            load("scale_followers", str(platform.port), str(FOLLOWERS), *node_names(agents))
        )
        tasks += [
            asyncio.create_task(holders.keep_passing_on(whole_node)),
            asyncio.create_task(holders.keep_probing()),
        ]
        database = await stack.enter_async_context(platform.postgres())
        size_before = await database.fetchval("SELECT pg_database_size(current_database())")
        stored_before = await database.fetchval(STORED_TICKS)
        usage, load_before, began = Usage(platform), _load_cpu(fleet, people), time.monotonic()
        for _ in track(range(round(seconds / LOOK_SECONDS)), description="measuring"):
            await asyncio.sleep(LOOK_SECONDS)
            usage.look()
            for task in tasks:
                if task.done():
                    task.result()
            for process in (fleet, people):
                assert process.returncode is None, f"a part of the load ended: {process.returncode}"
        cores, taken = usage.cores(), time.monotonic() - began
        load_cores = (_load_cpu(fleet, people) - load_before) / taken
        stored = await database.fetchval(STORED_TICKS) - stored_before
        growth = await database.fetchval("SELECT pg_database_size(current_database())")
        queue = len(holders.waiting)
        await cancel_and_wait(*tasks)
        seen, sent = await totals_of(people), await totals_of(fleet)

        async def is_stored() -> bool:
            return bool(await database.fetchval(STORED_TICKS) >= sent["sent"])

        with suppress(AssertionError):
            await eventually(is_stored, within_seconds=STOPPED_SECONDS, every_seconds=1.0)
        lost = sent["sent"] - await database.fetchval(STORED_TICKS)
    return {
        "agents": agents,
        "gpus": agents * GPUS_PER_NODE,
        "samples_per_s": round(stored * GPUS_PER_NODE / taken),
        "samples_lost": lost * GPUS_PER_NODE,
        "ticks_late": sent["late"],
        "queue": queue,
        "grant_p50_ms": percentile_ms(holders.probe_seconds, 50),
        "grant_p99_ms": percentile_ms(holders.probe_seconds, 99),
        "leases_lost": holders.leases_lost,
        "commands_unanswered": clients.unanswered,
        "renew_p99_ms": percentile_ms(holders.renew_seconds, 99),
        "gateway_clients": FOLLOWERS,
        "frames_per_s": round(seen["frames"] / taken),
        "frames_skipped": seen["skipped"],
        "rss_mb_by_service": {name: round(value) for name, value in usage.looks[-1].items()},
        "rss_growth_mb_by_service": usage.growth_mb(),
        "cpu_by_service": cores,
        "load_cpu": round(load_cores, 2),
        "saturates_first": saturates_first(cores, usage.counts),
        "gb_per_day": round((growth - size_before) / taken * SECONDS_PER_DAY / 1e9, 1),
    }


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _load_cpu(*processes: Process) -> float:
    return sum(_cpu(psutil.Process(pid)) for pid in (os.getpid(), *(one.pid for one in processes)))


def main() -> None:
    """Measure, print the table, print the JSON line."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    agents = int(sys.argv[2]) if len(sys.argv) > 2 else AGENTS
    with short_directory() as directory:
        figures = asyncio.run(measure(directory, seconds, agents))
    table = Table("figure", "", title=f"{agents} agents of {GPUS_PER_NODE} simulated GPUs at 1 Hz")
    for name, value in figures.items():
        table.add_row(name, json.dumps(value))
    Console().print(table)
    questions = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.scale_questions"],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    figures |= json.loads(questions.stdout.splitlines()[-1])
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
