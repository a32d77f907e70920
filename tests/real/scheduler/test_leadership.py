"""Two schedulers on one ledger: both accept, one decides, a paused leader commits nothing."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import (
    RequestReservation,
    ReservationExpired,
    ReservationGranted,
)
from schemas.scheduler.views import AvailabilityView, GetAvailability
from services.scheduler.leader.live_engine import LiveEngine
from services.scheduler.ledger.change_feed import Changes
from services.scheduler.ledger.leader_election import Leadership, Succession
from services.scheduler.ledger.migrations import MIGRATIONS
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.postgres.database import Connection, Database, Row
from shared.testing import eventually
from tests.support.processes.scheduler import scheduler_process
from tests.support.worlds.scheduler import World, accepted, ledger, scheduler, world


class PausedLeadership(Leadership):
    """Stops between deciding and committing, as a process that the kernel does not run."""

    def __init__(self, database: Database, ttl_seconds: float) -> None:
        super().__init__(database, ttl_seconds)
        self.paused = asyncio.Event()
        self.resume = asyncio.Event()
        self.resume.set()
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def renew(self) -> None:
        if self.resume.is_set():
            await super().renew()

    async def check_and_fetch(
        self, connection: Connection, query: str, *args: object, is_decision: bool = False
    ) -> Sequence[Row]:
        check = partial(super().check_and_fetch, connection, query, *args, is_decision=is_decision)
        if self.resume.is_set():
            return await check()
        self.paused.set()
        await self.resume.wait()
        try:
            rows = await check()
        except Exception as error:
            self.outcome.set_result(type(error).__name__)
            raise
        self.outcome.set_result("committed")
        return rows


async def test_resigned_scheduler_leaves_the_succession(database: Database) -> None:
    leadership = Leadership(database, ttl_seconds=5.0)
    await leadership.hold()
    queueing = asyncio.create_task(Succession(leadership, lambda: None).run())

    await leadership.give_up()

    async with asyncio.timeout(10):
        await queueing


async def test_a_leader_that_was_paused_commits_nothing(nats_url: str, postgres_dsn: str) -> None:
    """The first leader has decided to grant when it stops for longer than its term. The second
    takes over and grants; then the first wakes up with its decision in hand.
    """
    made: list[PausedLeadership] = []

    def make(database: Database, ttl_seconds: float) -> PausedLeadership:
        made.append(PausedLeadership(database, ttl_seconds))
        return made[-1]

    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        await start(scheduler(nats_url, postgres_dsn, leader_ttl_seconds=0.5, make_leadership=make))
        around = await start(world(nats_url))
        await around.add_node("alpha", 1)
        accepted(await around.release(await around.granted(await around.request())))

        made[0].resume.clear()
        reservation_id = await around.request()
        async with asyncio.timeout(30):
            await made[0].paused.wait()
        # Only now: before it, a machine under load could have made the second the leader.
        await start(scheduler(nats_url, postgres_dsn, leader_ttl_seconds=0.5))
        granted = await around.granted(reservation_id)
        made[0].resume.set()
        async with asyncio.timeout(30):
            outcome = await made[0].outcome

        assert outcome == "LeadershipLost"
        assert around.seen(ReservationGranted, reservation_id) == [granted]
        async with ledger(postgres_dsn) as connection:
            rows = await connection.fetch(
                "SELECT reservation_id, epoch FROM holding WHERE released_at IS NULL"
            )
            assert [tuple(row) for row in rows] == [(reservation_id, granted.epoch)]


async def test_leader_keeps_its_term_through_a_long_cycle(
    nats_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading a large fleet on a busy machine may take longer than a term."""
    catch_up = LiveEngine.catch_up

    async def catch_up_slowly(engine: LiveEngine) -> Changes:
        if not engine.is_loaded:
            await asyncio.sleep(1.5)
        return await catch_up(engine)

    monkeypatch.setattr(LiveEngine, "catch_up", catch_up_slowly)
    async with (
        scheduler(nats_url, postgres_dsn, leader_ttl_seconds=0.5),
        scheduler(nats_url, postgres_dsn, leader_ttl_seconds=0.5),
        world(nats_url) as around,
    ):
        await around.add_node("alpha", 1)
        accepted(await around.release(await around.granted(await around.request())))

        async with ledger(postgres_dsn) as connection:
            assert await connection.fetchval("SELECT term FROM leader") == 1


async def test_both_schedulers_accept_and_only_one_decides(
    nats_url: str, postgres_dsn: str
) -> None:
    async with (
        scheduler(nats_url, postgres_dsn),
        scheduler(nats_url, postgres_dsn),
        world(nats_url) as around,
    ):
        await around.add_node("alpha", 4, interval_seconds=0.2)
        await around.known("alpha", 4)

        async def use() -> None:
            granted = await around.granted(await around.request())
            accepted(await around.renew(granted, activate=True))
            accepted(await around.release(granted))

        await asyncio.gather(*(use() for _ in range(20)))

        assert len({grant.epoch for grant in around.seen(ReservationGranted)}) == 20
        async with ledger(postgres_dsn) as connection:
            assert await connection.fetchval("SELECT term FROM leader") == 1


async def test_a_leader_that_stops_hands_over_at_once(nats_url: str, postgres_dsn: str) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(scheduler(nats_url, postgres_dsn))
        around = await stack.enter_async_context(world(nats_url))
        await around.add_node("alpha", 1)
        first = await around.granted(await around.request())
        async with scheduler(nats_url, postgres_dsn):
            waiting = await around.request()
            await around.waiting(waiting, ReasonCode.HELD)

        accepted(await around.release(first))

        assert (await around.granted(waiting)).epoch > first.epoch


async def test_restarted_scheduler_continues(nats_url: str, postgres_dsn: str) -> None:
    async with world(nats_url) as around:
        async with scheduler(nats_url, postgres_dsn):
            await around.add_node("alpha", 1)
            granted = await around.granted(await around.request())
            waiting = await around.request()

        async with scheduler(nats_url, postgres_dsn):
            view = await around.waiting(waiting, ReasonCode.HELD)
            accepted(await around.renew(granted, activate=True))
            accepted(await around.release(granted))
            await around.granted(waiting)

    assert view.queue_position == 1


@pytest.mark.parametrize("expires", ["-infinity", "infinity"], ids=["expired", "another's"])
async def test_the_row_is_taken_only_when_nobody_holds_it(postgres_dsn: str, expires: str) -> None:
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    await database.open()
    try:
        async with ledger(postgres_dsn) as connection:
            await connection.execute(
                "UPDATE leader SET expires_at = $1::text::timestamptz", expires
            )

        leads = await Leadership(database, 3.0).hold()

        assert leads is (expires == "-infinity")
    finally:
        await database.close()


async def test_standby_succeeds_a_killed_leader_early(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    """The row would hold everybody off for a minute; the lock of the dead session does not."""
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        leader = await start(
            scheduler_process(nats_url, postgres_dsn, tmp_path, leader_ttl_seconds=60)
        )
        around = await start(world(nats_url))
        await around.add_node("alpha", 2, interval_seconds=0.2)
        first = await around.granted(await around.request())
        await start(scheduler(nats_url, postgres_dsn, leader_ttl_seconds=60))

        leader.kill()
        await leader.process.wait()
        reservation_id = new_id()

        async def is_requested() -> bool:
            with suppress(UnavailableError):  # the bus still took the dead one for a receiver
                await around.request(reservation_id=reservation_id)
                return True
            return False

        await eventually(is_requested)
        second = await around.granted(reservation_id)

        assert second.epoch > first.epoch
        assert second.devices != first.devices
        async with ledger(postgres_dsn) as connection:
            assert await connection.fetchval("SELECT term FROM leader") == 2


@pytest.mark.long
async def test_stopped_leader_wakes_and_grants_nothing(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        leader = await start(
            scheduler_process(nats_url, postgres_dsn, tmp_path, leader_ttl_seconds=0.5)
        )
        around = await start(world(nats_url))
        await around.add_node("alpha", 4, interval_seconds=0.2)
        await around.known("alpha", 4)
        await start(scheduler(nats_url, postgres_dsn, leader_ttl_seconds=0.5))
        held = [await around.granted(await around.request()) for _ in range(2)]

        leader.pause()
        async with ledger(postgres_dsn) as connection:

            async def is_overtaken() -> bool:
                return bool(await connection.fetchval("SELECT term > 1 FROM leader"))

            await eventually(is_overtaken, what="the standby to take over")
        meanwhile = [await around.granted(i) for i in await requests(around, 2)]
        waiting = await requests(around, 2)
        leader.resume()
        for granted in held:
            accepted(await around.release(granted))
        later = [await around.granted(i) for i in waiting]

        epochs = [granted.epoch for granted in (*held, *meanwhile, *later)]
        assert epochs == sorted(set(epochs))
        assert overlaps(await holdings(postgres_dsn)) == []


async def test_clock_jump_ends_leases_but_frees_nothing(nats_url: str, postgres_dsn: str) -> None:
    """For the ledger a jump of the database's clock is that every time in it is long past."""
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        await around.add_node("alpha", 1, executor=False)
        granted = await around.granted(await around.request())
        waiting = await around.request(GpuRequest(wait_timeout_seconds=86_400))
        async with ledger(postgres_dsn) as connection:
            await connection.execute(
                "UPDATE reservation SET lease_expires_at = lease_expires_at - interval '1 hour'"
                " WHERE state = 'granted'"
            )
            await connection.execute("UPDATE leader SET expires_at = expires_at - interval '1 h'")

        await around.event(ReservationExpired, granted.reservation_id)
        await around.waiting(waiting, ReasonCode.QUARANTINED)

        assert len(await holdings(postgres_dsn)) == 1


async def requests(around: World, count: int) -> list[UUID]:
    """Requests for one GPU each; some may be asked of a scheduler that does not answer now."""
    ids = [new_id() for _ in range(count)]
    for reservation_id in ids:
        command = RequestReservation(command_id=new_id(), reservation_id=reservation_id)

        async def is_accepted(command: RequestReservation = command) -> bool:
            try:
                accepted(await around.bus.request(command, timeout_seconds=0.5))
            except UnavailableError:
                return False
            return True

        await eventually(is_accepted, what="somebody to accept")
    return ids


async def holdings(postgres_dsn: str) -> list[tuple[int, datetime, datetime | None]]:
    """Every holding there ever was: device, from, to."""
    async with ledger(postgres_dsn) as connection:
        rows = await connection.fetch(
            "SELECT device_no, granted_at, released_at FROM holding ORDER BY device_no, granted_at"
        )
    return [tuple(row) for row in rows]


def overlaps(held: list[tuple[int, datetime, datetime | None]]) -> list[int]:
    """Devices that two held at once."""
    return [
        before[0]
        for before, after in pairwise(held)
        if before[0] == after[0] and (before[2] is None or before[2] > after[1])
    ]


async def test_release_found_by_query_reads_gpu_first(nats_url: str, postgres_dsn: str) -> None:
    """Half of what people ask is answered by the one that does not lead."""
    async with (
        scheduler(nats_url, postgres_dsn),
        scheduler(nats_url, postgres_dsn),
        world(nats_url) as steward,
    ):
        node = await steward.add_node("alpha", 1)
        granted = await steward.granted(await steward.request())
        node.loads[granted.reservation_id] = node.gpus[0]
        await node.publish_sample()
        await asyncio.gather(*(_available(steward) for _ in range(8)))  # both have an engine now
        node.loads.clear()
        accepted(await steward.release(granted))

        answers = await asyncio.gather(*(_available(steward) for _ in range(8)))

        assert [(each.available, each.reasons) for each in answers] == [(True, ())] * 8


async def _available(steward: World) -> AvailabilityView:
    return await steward.bus.query(GetAvailability(request=GpuRequest()), AvailabilityView)
