"""What goes wrong, when, and for how long; every choice comes from the seed."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.history import ledger_audit
from tests.support.history.arena import Arena
from tests.support.history.processes import Victim
from tests.support.history.records import Outage

TERM_SECONDS = 3.0
FAILOVER_SECONDS = 5.0
RECONNECT_SECONDS = 2.0


@dataclass(slots=True)
class Nemesis:
    """One fault at a time on one target; several targets may suffer at once."""

    arena: Arena
    dice: random.Random
    clock_jumps: bool = False
    pause_seconds: tuple[float, float] = (0.5, 2.5)
    _suffering: set[str] = field(default_factory=set)
    _deciders_rest_until: float = 0.0
    _under_way: set["asyncio.Task[None]"] = field(default_factory=set)

    async def rage(self, seconds: float) -> None:
        """Faults until the time is over; healed when this returns."""
        deadline = time.monotonic() + seconds
        faults: list[Callable[[], Awaitable[None]]] = [
            self._kill_scheduler,
            self._pause_scheduler,
            self._kill_both,
            self._kill_nodes,
            self._kill_nodes,
            self._pause_nodes,
            self._pause_nodes,
            self._wipe_bus,
            self._restart_postgres,
            self._hold_up_link,
            self._hold_up_link,
            self._cut_link,
        ]
        if self.clock_jumps:
            faults += [self._jump, self._jump]
        while time.monotonic() < deadline:
            task = asyncio.create_task(self._first_possible(self.dice.sample(faults, len(faults))))
            self._under_way.add(task)
            await asyncio.sleep(self.dice.uniform(*self.pause_seconds))
        await asyncio.gather(*self._under_way)

    async def _first_possible(self, faults: list[Callable[[], Awaitable[None]]]) -> None:
        for fault in faults:
            with contextlib.suppress(Skipped):
                await fault()
                return

    @asynccontextmanager
    async def _alone(self, *names: str, deciders: bool = False) -> AsyncIterator[None]:
        """The only fault on these targets. Those who decide get time to take over in between:
        the bound of a leak holds for one failover, not for a chain of them.
        """
        if not self._suffering.isdisjoint(names):
            raise Skipped
        if deciders and time.monotonic() < self._deciders_rest_until:
            raise Skipped
        if deciders:
            self._deciders_rest_until = float("inf")
        self._suffering |= set(names)
        try:
            yield
        finally:
            self._suffering -= set(names)
            if deciders:
                self._deciders_rest_until = time.monotonic() + FAILOVER_SECONDS

    async def _kill_scheduler(self) -> None:
        victim = self.dice.choice(self.arena.schedulers)
        async with self._alone(victim.name, deciders=True):
            self.arena.fault("SIGKILL", victim.name)
            victim.kill()
            await asyncio.sleep(self.dice.uniform(0.2, TERM_SECONDS * 2))
            await victim.start()

    async def _pause_scheduler(self) -> None:
        victim = self.dice.choice(self.arena.schedulers)
        async with self._alone(victim.name, deciders=True):
            await self._pause(victim, TERM_SECONDS + self.dice.uniform(0.5, 3.0))

    async def _kill_both(self) -> None:
        names = [victim.name for victim in self.arena.schedulers]
        async with self._alone(*names, deciders=True):
            began = time.monotonic()
            for victim in self.arena.schedulers:
                self.arena.fault("SIGKILL", victim.name)
                victim.kill()
            await asyncio.sleep(self.dice.uniform(0.2, 3.0))
            await asyncio.gather(*(victim.start() for victim in self.arena.schedulers))
            until = max(time.monotonic(), began + TERM_SECONDS) + 1.0
            self.arena.note(Outage(at=began, until=until, what="no scheduler"))

    async def _kill_nodes(self) -> None:
        victim = self.dice.choice(self.arena.nodes)
        async with self._alone(victim.name):
            self.arena.fault("SIGKILL", victim.name)
            victim.kill()
            await asyncio.sleep(self.dice.uniform(0.1, 6.0))
            await victim.start()

    async def _pause_nodes(self) -> None:
        victim = self.dice.choice(self.arena.nodes)
        async with self._alone(victim.name):
            await self._pause(victim, self.dice.uniform(4.0, 8.0))

    async def _pause(self, victim: Victim, seconds: float) -> None:
        self.arena.fault("SIGSTOP", victim.name)
        victim.pause()
        try:
            await asyncio.sleep(seconds)
        finally:
            victim.resume()

    async def _wipe_bus(self) -> None:
        async with self._alone("nats"):
            assert self.arena.nats is not None
            self.arena.fault("store wiped", "nats")
            await self.arena.nats.crash_and_lose_store()
            await asyncio.sleep(self.dice.uniform(0.0, 1.0))
            await self.arena.nats.start()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _restart_postgres(self) -> None:
        async with self._alone("postgres", deciders=True):
            began = time.monotonic()
            if self.dice.random() < 0.5:
                self.arena.fault("SIGKILL", "postgres")
                self.arena.postgres.kill()
                await self.arena.postgres.wait()
            else:
                self.arena.fault("restarted", "postgres")
                await self.arena.postgres.stop()
            await asyncio.sleep(self.dice.uniform(0.0, 1.0))
            await self.arena.postgres.start()
            until = time.monotonic() + RECONNECT_SECONDS
            self.arena.note(Outage(at=began, until=until, what="postgres"))

    async def _hold_up_link(self) -> None:
        name = self.dice.choice(sorted(self.arena.links))
        async with self._alone(f"link {name}"):
            self.arena.fault("link held up", name)
            self.arena.links[name].hold_up()
            try:
                await asyncio.sleep(self.dice.uniform(0.5, 6.0))
            finally:
                self.arena.links[name].let_through()

    async def _cut_link(self) -> None:
        name = self.dice.choice(sorted(self.arena.links))
        async with self._alone(f"link {name}"):
            self.arena.fault("link cut", name)
            self.arena.links[name].cut()

    async def _jump(self) -> None:
        async with self._alone("clock", "postgres", deciders=True):
            seconds = self.dice.choice((-1.5, 4.0, 20.0, 3600.0))
            self.arena.fault("clock jumped", f"{seconds:+g} s")
            await ledger_audit.move_clock(self.arena.dsn, seconds)


class Skipped(Exception):
    """The target suffers already."""
