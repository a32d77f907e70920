"""Everything that runs is killed, paused and robbed while clients and tasks go on; then counted.

What is counted comes from Postgres, from the processes themselves and from what clients were told,
not from what a service says about itself.
"""

import asyncio
import itertools
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import ReservationState
from services.cli.local_platform.options import default_fleet
from shared.client.discovery import Address
from shared.client.http import StewardClient
from shared.errors import StewardError
from shared.ids import new_id
from shared.testing import eventually
from shared.waiting import cancel_and_wait, within
from tests.support.processes.engine_sightings import EngineWatch, overlaps
from tests.support.processes.platform import (
    PlatformProcess,
    assert_sound,
    marked_processes,
    quick_task,
)

GPUS: Final = 6
CLIENTS: Final = 4
TASKS: Final = 2
TTL_SECONDS: Final = 10.0
TIMEOUT_SECONDS: Final = 40.0
FINISH_SECONDS: Final = 120.0
SETTLE_SECONDS: Final = 60.0
PAUSES_SECONDS: Final = (1.5, 5.0)
BETWEEN_SECONDS: Final = (0.7, 2.0)

OVERLAPPING = """
SELECT count(*) FROM scheduler.holding a JOIN scheduler.holding b
ON a.cells && b.cells AND a.reservation_id < b.reservation_id
AND a.granted_at < coalesce(b.released_at, 'infinity')
AND b.granted_at < coalesce(a.released_at, 'infinity')
"""
UNSETTLED = """
SELECT (SELECT count(*) FROM scheduler.reservation
    WHERE state IN ('queued', 'granted', 'active', 'releasing'))
+ (SELECT count(*) FROM scheduler.holding WHERE released_at IS NULL)
"""
KNOWN = "SELECT reservation_id FROM scheduler.reservation WHERE reservation_id = ANY ($1)"
# An experiment's end is told once, and as often to who asks the event log.
ENDS = """
SELECT experiment_id, count(DISTINCT message_id) AS ends FROM gateway.event
WHERE type IN ('orchestrator.experiment_succeeded', 'orchestrator.experiment_failed',
    'orchestrator.experiment_cancelled') GROUP BY 1
"""
ALL_TOLD = """
SELECT NOT EXISTS (SELECT FROM orchestrator.experiment e WHERE NOT EXISTS (SELECT FROM gateway.event
    WHERE experiment_id = e.experiment_id::text AND type IN ('orchestrator.experiment_succeeded',
        'orchestrator.experiment_failed', 'orchestrator.experiment_cancelled')))
"""
HELD_TOO_LONG = """
SELECT coalesce(max(extract(epoch FROM h.released_at - r.ended_at)), 0)
FROM scheduler.holding h JOIN scheduler.reservation r USING (reservation_id)
"""
ENDED = """
SELECT reservation_id, extract(epoch FROM ended_at)::float8 AS ended_at
FROM scheduler.reservation WHERE ended_at IS NOT NULL
"""


@dataclass(slots=True)
class Findings:
    """What a tour has done and found; `violations` are sentences."""

    operations: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    overlaps: int = 0
    lost: int = 0
    leftovers: int = 0
    leak_max_s: float = 0.0
    worst_gap_s: float = 0.0
    settled_s: float = 0.0

    def counts(self) -> dict[str, Any]:
        return {
            "operations": self.operations,
            "faults": self.faults.total(),
            "kills": sum(n for what, n in self.faults.items() if what.startswith("SIGKILL")),
            "violations": len(self.violations),
            "overlaps": self.overlaps,
            "lost": self.lost,
            "leftovers": self.leftovers,
            "leak_max_s": round(self.leak_max_s, 1),
            "worst_gap_s": round(self.worst_gap_s, 1),
            "settled_s": round(self.settled_s, 1),
        }


@dataclass(frozen=True, slots=True)
class _Hold:
    """When a client could count on a device, by its own clock."""

    device: str
    reservation_id: UUID
    began: float
    ended: float


@dataclass
class KillTour:
    """One platform, on which everything but its supervisor suffers for `fault_seconds`."""

    directory: Path
    dice: random.Random
    fault_seconds: float
    found: Findings = field(default_factory=Findings)
    _platform: PlatformProcess = field(init=False)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _granted_at: list[float] = field(default_factory=list)
    _holds: list[_Hold] = field(default_factory=list)
    _accepted: set[UUID] = field(default_factory=set)
    _tasks: list[UUID] = field(default_factory=list)

    async def run(self) -> Findings:
        """The whole tour, the platform's start and end included."""
        fleet = self.directory / "fleet.toml"
        fleet.write_text(_fleet_of(GPUS))
        self._platform = platform = PlatformProcess(
            self.directory / "data", arguments=("--fleet", str(fleet))
        )
        await platform.start()
        installation = str(platform.directory.installation_id())
        watch = EngineWatch(installation)
        watching = asyncio.create_task(watch.run())
        try:
            await self._suffer()
            await self._settle(watch)
            await self._judge(watch)
        finally:
            await cancel_and_wait(watching)
            await platform.stop()
        left = [" ".join(process.cmdline()) for process in marked_processes(installation)]
        self._blame("leftovers", [f"runs after the platform: {each}" for each in left])
        return self.found

    async def _suffer(self) -> None:
        workers = [
            *[asyncio.create_task(self._each(self._reserve)) for _ in range(CLIENTS)],
            *[asyncio.create_task(self._each(self._tune)) for _ in range(TASKS)],
        ]
        try:
            await self._inflict()
            self._over.set()
            async with within(FINISH_SECONDS):
                await asyncio.gather(*workers)
        except TimeoutError:
            self._blame("lost", ["a client or a task did not come to its end"])
        finally:
            await cancel_and_wait(*workers)

    async def _inflict(self) -> None:
        """Everything once in a random order, again and again."""
        parts = list(self._platform.states())
        schedulers = [name for name in parts if name.startswith("scheduler")]
        plan = [
            *[("SIGKILL", name) for name in (*parts, *schedulers, *schedulers)],
            *[("SIGSTOP", name) for name in parts if name != "postgres"],
            *[("store wiped", "nats")] * 2,
        ]
        deadline = time.monotonic() + self.fault_seconds
        while time.monotonic() < deadline:
            for what, name in self.dice.sample(plan, len(plan)):
                if time.monotonic() > deadline:
                    return
                await asyncio.sleep(self.dice.uniform(*BETWEEN_SECONDS))
                await self._strike(what, name)

    async def _strike(self, what: str, name: str) -> None:
        pid = self._platform.pid_of(name)
        if pid is None:
            return
        self.found.faults[f"{what} {name}"] += 1
        if what == "SIGSTOP":
            self._platform.kill(name, signal.SIGSTOP)
            await asyncio.sleep(self.dice.uniform(*PAUSES_SECONDS))
            if self._platform.pid_of(name) == pid:
                self._platform.kill(name, signal.SIGCONT)
            return
        if what == "store wiped":
            shutil.rmtree(self._platform.directory.nats / "jetstream", ignore_errors=True)
        self._platform.kill(name)

    async def _each(
        self,
        work: Callable[[StewardClient], Coroutine[Any, Any, None]],
    ) -> None:
        """Again and again until the faults are over; what cannot be asked is asked again."""
        address = Address(self._platform.url, None)
        async with StewardClient(address, retry_seconds=TIMEOUT_SECONDS) as client:
            while not self._over.is_set():
                with suppress(StewardError):
                    await work(client)

    async def _reserve(self, client: StewardClient) -> None:
        wanted = GpuRequest(gpus=1, lease_ttl_seconds=TTL_SECONDS, wait_timeout_seconds=60)
        reservation_id = new_id()
        await client.request_reservation(wanted, holder="tour", reservation_id=reservation_id)
        self._accepted.add(reservation_id)
        view = await client.await_reservation(reservation_id, timeout_seconds=70)
        if view.state is not ReservationState.GRANTED or view.granted_at is None:
            return
        self._granted_at.append(time.monotonic())
        began = time.time()
        await asyncio.sleep(self.dice.uniform(0.0, 0.5))
        ended = min(time.time(), view.granted_at.timestamp() + TTL_SECONDS)
        self._holds += [_Hold(device.uuid, reservation_id, began, ended) for device in view.devices]
        await client.release_reservation(reservation_id, view.epoch or 0)
        self.found.operations += 1

    async def _tune(self, client: StewardClient) -> None:
        task = quick_task(f"tour-{len(self._tasks)}-{self.dice.randrange(10**6)}")
        task["optimization"]["max_attempts"] = 50
        task_id = await client.submit_task(msgspec.json.encode(task), command_id=new_id())
        self._tasks.append(task_id)
        await self._platform.until_finished(str(task_id), within_seconds=300)

    async def _settle(self, watch: EngineWatch) -> None:
        """Wait until nothing is held and nothing runs; how long that took."""
        began = time.monotonic()

        async def is_settled() -> bool:
            with suppress(OSError):
                async with self._platform.postgres() as connection:
                    return not watch.look() and not await connection.fetchval(UNSETTLED)
            return False

        try:
            await eventually(is_settled, within_seconds=SETTLE_SECONDS, every_seconds=0.2)
        except AssertionError:
            self._blame("leftovers", [f"{watch.look()} engines, or what is held, stay"])
        with suppress(AssertionError):  # who was not told is found below
            await eventually(self._is_all_told, within_seconds=SETTLE_SECONDS, every_seconds=0.5)
        self.found.settled_s = time.monotonic() - began

    async def _is_all_told(self) -> bool:
        """Events that went with a wiped store are published again, a little later."""
        async with self._platform.postgres() as connection:
            return bool(await connection.fetchval(ALL_TOLD))

    async def _judge(self, watch: EngineWatch) -> None:
        found = self.found
        async with self._platform.postgres() as connection:
            double = await connection.fetchval(OVERLAPPING)
            known = {row[0] for row in await connection.fetch(KNOWN, list(self._accepted))}
            ends = {row["experiment_id"]: row["ends"] for row in await connection.fetch(ENDS)}
            found.leak_max_s = float(await connection.fetchval(HELD_TOO_LONG))
            ended = {str(row[0]): row[1] for row in await connection.fetch(ENDED)}
        self._blame("overlaps", [f"{double} overlapping holdings"] if double else [])
        self._blame("overlaps", [f"ran at once: {pair}" for pair in overlaps(watch.sightings)])
        self._blame("overlaps", [f"held at once: {pair}" for pair in _told_twice(self._holds)])
        self._blame("lost", [f"reservation {each}" for each in self._accepted - known])
        for task_id in self._tasks:
            view = await self._platform.task(str(task_id))
            if view.get("state") != "completed":
                self._blame("lost", [f"task {task_id}: {view}"])
                continue
            experiments = await self._platform.experiments(str(task_id))
            found.operations += len(experiments)
            self._blame("lost", [each for one in experiments for each in _lost(one, ends)])
            try:
                await assert_sound(self._platform, str(task_id))
            except AssertionError as error:
                self._blame("lost", [f"task {task_id}: {error}"])
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        after_end = (
            boot + each.last_seen_at - ended[each.reservation_id]
            for each in watch.sightings
            if each.reservation_id in ended
        )
        found.leak_max_s = max(found.leak_max_s, *after_end, 0.0)
        gaps = (later - earlier for earlier, later in itertools.pairwise(self._granted_at))
        found.worst_gap_s = max(gaps, default=self.fault_seconds)

    def _blame(self, count: str, violations: list[str]) -> None:
        self.found.violations += violations
        setattr(self.found, count, getattr(self.found, count) + len(violations))


def _lost(experiment: dict[str, Any], ends: dict[str, int]) -> list[str]:
    """Why this experiment has not exactly one outcome, of one of its attempts after the other."""
    told = ends.get(experiment["experiment_id"], 0)
    attempts = experiment["attempts"]
    outcomes = [attempt["outcome"] for attempt in attempts]
    spans = sorted((a["started_at"], a["finished_at"]) for a in attempts if a.get("started_at"))
    in_turn = all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    if told == 1 and all(outcomes) and outcomes.count("succeeded") == 1 and in_turn:
        return []
    return [f"experiment {experiment['experiment_id']}: {told} ends told, {outcomes}, {spans}"]


def _told_twice(holds: list[_Hold]) -> list[tuple[_Hold, _Hold]]:
    return [
        (one, other)
        for one, other in itertools.combinations(sorted(holds, key=lambda h: h.began), 2)
        if one.device == other.device
        and one.reservation_id != other.reservation_id
        and one.began < other.ended
        and other.began < one.ended
    ]


def _fleet_of(gpus: int) -> str:
    """The example's, with as many devices."""
    lines = default_fleet().read_text().splitlines()
    first = next(line for line in lines if "mother_uuid" in line)
    devices = [first.replace("000000000000", f"{number:012d}") for number in range(gpus)]
    others = [line for line in lines if "mother_uuid" not in line]
    at = others.index("devices = [") + 1
    return "\n".join([*others[:at], *devices, *others[at:]]) + "\n"
