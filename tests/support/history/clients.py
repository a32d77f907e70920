"""Clients that ask for GPUs at random and do with a grant what people and programs do with it."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from schemas.errors import Accepted, Refused
from schemas.executor.attempts import EngineSpec, Runtime, StartExperiment
from schemas.executor.running import ListRunning, RunningAttempts
from schemas.gpus.gpu_request import GpuRequest, Placement
from schemas.scheduler.reservations import (
    OPEN_STATES,
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationGranted,
)
from schemas.scheduler.views import GetReservation, ReservationView
from schemas.task.benchmark import BenchmarkSpec
from shared.errors import RefusedError, UnavailableError
from shared.ids import new_id
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.history.arena import Arena
from tests.support.history.node_double import PARTS

LEASE_TTL_SECONDS = 3.0
TIMEOUT_SECONDS = 40.0
# Slower than any run lasts: every one is ended by its time limit.
ENGINE = EngineSpec(
    runtime=Runtime.PROCESS,
    engine="simulated",
    model="m",
    parameters={"ttft-seconds": 0.01, "tpot-seconds": 0.05},
)
BENCHMARK = BenchmarkSpec(
    traffic_scenarios=("D(8,64)",),
    num_concurrency=(1,),
    max_requests_per_level=100_000,
    max_time_per_level_seconds=600,
    warmup_requests=0,
)


def make_request(dice: random.Random, *, wide: bool) -> GpuRequest:
    """Something that fits on nodes of 2 to 4 GPUs, most of the time; `wide` ones take gangs and
    parts of the host too.
    """
    nodes = 2 if wide and dice.random() < 0.2 else 1
    return GpuRequest(
        gpus=dice.choice((1, 1, 1, 1, 1, 2, 2, 3)) if nodes == 1 else dice.choice((1, 1, 2)),
        nodes=nodes,
        placement=dice.choice(tuple(Placement)),
        priority=dice.choice((0, 0, 0, 5)),
        wait_timeout_seconds=dice.uniform(2.0, 12.0),
        lease_ttl_seconds=LEASE_TTL_SECONDS,
        expected_duration_seconds=dice.choice((None, None, 1.0, 5.0)),
        preemptible=dice.random() < 0.3,
        cpu_count=dice.choice((None, None, 4.0, 10.0)) if wide else None,
        host_memory_mb=dice.choice((None, None, 8_000, 40_000)) if wide else None,
    )


@dataclass(slots=True)
class Client:
    """One that asks, uses, gives back and forgets, over and over."""

    arena: Arena
    dice: random.Random
    wide: bool
    run_seconds: tuple[float, ...] = (0.2, 0.5, 1.0, 4.0)

    async def live(self, goes_on: Callable[[], bool]) -> None:
        """One reservation after another."""
        while goes_on():
            with contextlib.suppress(UnavailableError):
                await self._once()
            await asyncio.sleep(self.dice.uniform(0.0, 0.3))

    async def _once(self) -> None:
        reservation_id = await self._request()
        if reservation_id is None:
            return
        granted = await self._grant_of(reservation_id)
        if granted is None:
            return
        plans = [self._hand_over] * 7 + [
            self._hold,
            self._hold,
            self._leak,
            self._cancel_at_once,
            self._give_up,
        ]
        await self.dice.choice(plans)(granted)

    async def _request(self) -> UUID | None:
        command = RequestReservation(
            command_id=new_id(),
            reservation_id=new_id(),
            holder="history",
            request=make_request(self.dice, wide=self.wide),
        )
        for _ in range(8):
            reply = await self.arena.messenger.ask(command)
            if isinstance(reply, Accepted):
                return command.reservation_id
            if isinstance(reply, Refused) and not reply.retryable:
                return None
            await asyncio.sleep(0.5)
        return None

    async def _grant_of(self, reservation_id: UUID) -> ReservationGranted | None:
        """The grant, heard of or asked for; None if it ended without one, or was given up."""
        gives_up = self.dice.random() < 0.1
        deadline = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            if (granted := self.arena.granted.get(reservation_id)) is not None:
                return granted
            self.arena.told[reservation_id].clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.arena.told[reservation_id].wait()
            view = await self._view(reservation_id)
            if view is not None and view.state not in OPEN_STATES:
                return None
            if gives_up:
                await self._cancel(reservation_id)
                return None
        return None

    async def _hand_over(self, granted: ReservationGranted) -> None:
        """Start it on its nodes; from then on the executors keep the lease."""
        seconds = self.dice.choice(self.run_seconds)
        starts = self._starts(granted, seconds)
        renewing = self.arena.tasks.create_task(self._keep(granted))
        try:
            for start in starts:
                if not await self._start(start):
                    await self._cancel(granted.reservation_id)
                    return
            if len(starts) > 1:
                await self._give_back_parts(granted, starts)
                return
        finally:
            await cancel_and_wait(renewing)
        if self.dice.random() < 0.2:
            await asyncio.sleep(self.dice.uniform(0.0, seconds))
            await self._cancel(granted.reservation_id)
            return
        await self._until_ended(granted.reservation_id)

    def _starts(self, granted: ReservationGranted, seconds: float) -> list[StartExperiment]:
        node_ids = sorted({device.node_id for device in granted.devices})
        return [
            StartExperiment(
                command_id=new_id(),
                executor_id=node_id,
                experiment_id=new_id(),
                attempt_id=new_id(),
                attempt_number=1,
                task_id=new_id(),
                namespace=PARTS if len(node_ids) > 1 else "default",
                reservation_id=granted.reservation_id,
                epoch=granted.epoch,
                lease_ttl_seconds=granted.lease_ttl_seconds,
                devices=tuple(d for d in granted.devices if d.node_id == node_id),
                engine=ENGINE,
                benchmark=BENCHMARK,
                timeout_seconds=seconds,
            )
            for node_id in node_ids
        ]

    async def _start(self, start: StartExperiment) -> bool:
        for _ in range(4):
            reply = await self.arena.messenger.ask(start, timeout_seconds=1.0)
            if reply is not None and not (isinstance(reply, Refused) and reply.retryable):
                return isinstance(reply, Accepted)
            await asyncio.sleep(0.2)
        return False

    async def _give_back_parts(
        self, granted: ReservationGranted, starts: list[StartExperiment]
    ) -> None:
        """A gang is given back when every node says that its part has ended."""
        for start in starts:
            await eventually(
                partial(self._has_ended, start),
                within_seconds=TIMEOUT_SECONDS,
                every_seconds=0.2,
                what="the end of a gang's part",
            )
        await self._release(granted, stopped=True)

    async def _has_ended(self, start: StartExperiment) -> bool:
        try:
            running = await self.arena.bus.query(
                ListRunning(executor_id=start.executor_id), RunningAttempts, timeout_seconds=1.0
            )
        except (UnavailableError, RefusedError):
            return False
        return all(attempt.attempt_id != start.attempt_id for attempt in running.attempts)

    async def _keep(self, granted: ReservationGranted) -> None:
        while True:
            reply = await self._renew(granted, granted.epoch)
            if isinstance(reply, Refused) and not reply.retryable:
                return
            await asyncio.sleep(LEASE_TTL_SECONDS / 3)

    async def _hold(self, granted: ReservationGranted) -> None:
        """Use it from here: nothing runs on the node."""
        for _ in range(self.dice.randrange(4)):
            await self._renew(granted, granted.epoch)
            if self.dice.random() < 0.3:
                await self._renew(granted, max(1, granted.epoch + self.dice.choice((-1, 1, 50))))
            await asyncio.sleep(LEASE_TTL_SECONDS / 3)
        await self._release(granted, stopped=True)
        if self.dice.random() < 0.3:
            await self._renew(granted, granted.epoch)
            await self._release(granted, stopped=True)

    async def _leak(self, granted: ReservationGranted) -> None:
        await self._until_ended(granted.reservation_id)

    async def _cancel_at_once(self, granted: ReservationGranted) -> None:
        await self._cancel(granted.reservation_id)

    async def _give_up(self, granted: ReservationGranted) -> None:
        await self._release(granted, stopped=False)

    async def _until_ended(self, reservation_id: UUID) -> None:
        deadline = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            view = await self._view(reservation_id)
            if view is not None and view.state not in OPEN_STATES:
                return
            await asyncio.sleep(0.3)

    async def _view(self, reservation_id: UUID) -> ReservationView | None:
        try:
            return await self.arena.bus.query(
                GetReservation(reservation_id=reservation_id), ReservationView, timeout_seconds=2.0
            )
        except (UnavailableError, RefusedError):
            return None

    async def _renew(self, granted: ReservationGranted, epoch: int) -> object:
        command = RenewReservation(
            command_id=new_id(), reservation_id=granted.reservation_id, epoch=epoch
        )
        return await self.arena.messenger.ask(command, timeout_seconds=1.0)

    async def _release(self, granted: ReservationGranted, *, stopped: bool) -> None:
        command = ReleaseReservation(
            command_id=new_id(),
            reservation_id=granted.reservation_id,
            epoch=granted.epoch,
            stopped=stopped,
        )
        await self._until_answered(command)

    async def _cancel(self, reservation_id: UUID) -> None:
        await self._until_answered(
            CancelReservation(command_id=new_id(), reservation_id=reservation_id)
        )

    async def _until_answered(self, command: ReleaseReservation | CancelReservation) -> None:
        for _ in range(20):
            reply = await self.arena.messenger.ask(command)
            if reply is not None and (isinstance(reply, Accepted) or not reply.retryable):
                return
            await asyncio.sleep(0.5)


async def cancel_all(arena: Arena, ids: list[UUID]) -> None:
    """End what clients have left open."""
    client = Client(arena, arena.dice, wide=False)
    await asyncio.gather(*(client._cancel(i) for i in ids))  # noqa: SLF001  # a client of this module
