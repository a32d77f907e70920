"""Two schedulers on one ledger: both accept, one decides, a paused leader commits nothing."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from schemas.gpu_request import ReasonCode
from schemas.scheduler import ReservationGranted
from services.scheduler.leadership import Leadership
from services.scheduler.migrations import MIGRATIONS
from shared.database import Connection, Database
from tests.scheduler_world import accepted, ledger, scheduler, world


class PausedLeadership(Leadership):
    """Stops between deciding and committing, as a process that the kernel does not run."""

    def __init__(self, database: Database, ttl_seconds: float) -> None:
        super().__init__(database, ttl_seconds)
        self.paused = asyncio.Event()
        self.resume = asyncio.Event()
        self.resume.set()
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def check(self, connection: Connection) -> None:
        if self.resume.is_set():
            return await super().check(connection)
        self.paused.set()
        await self.resume.wait()
        try:
            await super().check(connection)
        except Exception as error:
            self.outcome.set_result(type(error).__name__)
            raise
        self.outcome.set_result("committed")
        return None


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
        await start(scheduler(nats_url, postgres_dsn, leader_ttl_seconds=0.5))

        made[0].resume.clear()
        reservation_id = await around.request()
        async with asyncio.timeout(10):
            await made[0].paused.wait()
        granted = await around.granted(reservation_id)
        made[0].resume.set()
        async with asyncio.timeout(10):
            outcome = await made[0].outcome

        assert outcome == "LeadershipLost"
        assert around.seen(ReservationGranted, reservation_id) == [granted]
        async with ledger(postgres_dsn) as connection:
            rows = await connection.fetch(
                "SELECT reservation_id, epoch FROM holding WHERE released_at IS NULL"
            )
            assert [tuple(row) for row in rows] == [(reservation_id, granted.epoch)]


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


async def test_a_restarted_scheduler_goes_on_where_the_last_one_stopped(
    nats_url: str, postgres_dsn: str
) -> None:
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
