"""What we promise holds on other versions of NATS and Postgres than those that we bring."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg
import pytest

from schemas.errors import Accepted, Reply
from schemas.scheduler.reservations import CancelReservation, ReservationReleased, ReservationState
from services.gateway.ledger.migrations import MIGRATIONS as GATEWAY
from services.orchestrator.ledger.migrations import MIGRATIONS as ORCHESTRATOR
from services.results.migrations import MIGRATIONS as RESULTS
from services.scheduler.ledger.migrations import MIGRATIONS as SCHEDULER
from shared.ids import new_id
from shared.messaging.bus import Bus, Route, command_route, event_route
from shared.messaging.streams import EVENTS
from shared.postgres.database import Database
from shared.postgres.outbox import stage
from shared.service import Service
from shared.testing import eventually
from tests.support.docker.other_servers import nats_container, postgres_container
from tests.support.docker.private_engine import PrivateEngine
from tests.support.worlds.gateway import make_released
from tests.support.worlds.scheduler import accepted, ledger, scheduler, world

pytestmark = pytest.mark.long

# The oldest that is supported first; the newest of each is what we bring.
NATS_VERSIONS = ["2.10.26", "2.11.11", "2.12.8", "2.14.6", "2.15.1"]
POSTGRES_MAJORS = [15, 16, 18]
MIGRATIONS = {
    "gateway": GATEWAY,
    "orchestrator": ORCHESTRATOR,
    "results": RESULTS,
    "scheduler": SCHEDULER,
}
COLUMNS = """
SELECT table_schema || '.' || table_name, column_name, data_type, is_nullable
FROM information_schema.columns WHERE table_schema = ANY ($1) ORDER BY 1, 2"""
INDEXES = """
SELECT schemaname || '.' || tablename, indexname, indexdef
FROM pg_indexes WHERE schemaname = ANY ($1) ORDER BY 1, 2"""


@pytest.fixture(scope="module", params=NATS_VERSIONS)
def other_nats_url(docker_engine: PrivateEngine, request: pytest.FixtureRequest) -> Iterator[str]:
    with nats_container(docker_engine, request.param) as url:
        yield url


@pytest.fixture(scope="module")
def oldest_nats_url(docker_engine: PrivateEngine) -> Iterator[str]:
    with nats_container(docker_engine, NATS_VERSIONS[0]) as url:
        yield url


@pytest.fixture(scope="module", params=POSTGRES_MAJORS)
def other_postgres(docker_engine: PrivateEngine, request: pytest.FixtureRequest) -> Iterator[str]:
    with postgres_container(docker_engine, request.param) as dsn:
        yield dsn


@pytest.fixture
async def other_dsn(other_postgres: str) -> AsyncIterator[str]:
    """An empty database of the test's own on the other Postgres."""
    name = f"test_{new_id().hex}"
    connection = await asyncpg.connect(other_postgres)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        yield f"{other_postgres.rpartition('/')[0]}/{name}"
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


@dataclass
class Owner:
    """Answers a command, and hears an event only at the second try."""

    commands: list[UUID] = field(default_factory=list)
    tries: int = 0
    heard: list[UUID] = field(default_factory=list)

    async def cancel(self, command: CancelReservation) -> Reply:
        self.commands.append(command.command_id)
        return Accepted(command_id=command.command_id)

    async def on_released(self, event: ReservationReleased) -> None:
        self.tries += 1
        if self.tries == 1:
            raise RuntimeError("not at the first try")
        self.heard.append(event.reservation_id)


@asynccontextmanager
async def service(
    name: str, nats_url: str, dsn: str, routes: Sequence[Route] = ()
) -> AsyncIterator[Service]:
    database = Database(dsn, name, ())
    made = Service(name, bus=Bus(name, nats_url), database=database, routes=routes)
    async with made.running():
        yield made


async def described(dsn: str) -> list[asyncpg.Record]:
    """Every column and every index that the migrations have made."""
    connection = await asyncpg.connect(dsn)
    try:
        names = list(MIGRATIONS)
        return [*await connection.fetch(COLUMNS, names), *await connection.fetch(INDEXES, names)]
    finally:
        await connection.close()


async def test_bus_works_on_other_nats_servers(other_nats_url: str, postgres_dsn: str) -> None:
    """A request is answered, an event stored once and repeated until it is handled, and all that
    was staged comes again when the stream is a new one.
    """
    owner = Owner()
    routes = [
        command_route(owner.cancel, CancelReservation),
        event_route(owner.on_released, ReservationReleased, durable="other_on_released"),
    ]
    async with (
        service("scheduler", other_nats_url, postgres_dsn, routes),
        service("orchestrator", other_nats_url, postgres_dsn) as teller,
    ):
        assert teller.database is not None
        command = CancelReservation(command_id=new_id(), reservation_id=new_id())
        reply = await teller.bus.request(command)
        first, second = make_released(holder="test"), make_released(holder="test")
        for _ in range(2):
            await teller.bus.publish_event(first)
        await eventually(lambda: owner.heard == [first.reservation_id])
        async with teller.database.transaction() as connection:
            await stage(connection, second)
        await eventually(lambda: owner.heard == [first.reservation_id, second.reservation_id])
        stored = (await teller.bus.jetstream.stream_info(str(EVENTS.name))).state.messages
        await teller.bus.jetstream.delete_stream(str(EVENTS.name))
        await eventually(lambda: owner.heard.count(second.reservation_id) == 2)

    assert reply == Accepted(command_id=command.command_id)
    assert owner.commands == [command.command_id]
    assert stored == 2
    assert owner.tries == 4


async def test_scheduler_works_on_other_servers(oldest_nats_url: str, other_dsn: str) -> None:
    async with scheduler(oldest_nats_url, other_dsn), world(oldest_nats_url) as around:
        await around.add_node("alpha", 1)
        granted = await around.granted(await around.request())
        accepted(await around.renew(granted, activate=True))
        waits = await around.request()
        accepted(await around.release(granted))
        next_granted = await around.granted(waits)
        state = (await around.view(granted.reservation_id)).state
        async with ledger(other_dsn) as connection:
            holder = await connection.fetchval("SELECT holder FROM leader WHERE term > 0")
            with pytest.raises(asyncpg.ExclusionViolationError):
                await connection.execute(
                    "UPDATE holding SET released_at = NULL WHERE reservation_id = $1",
                    granted.reservation_id,
                )

    assert state is ReservationState.RELEASED
    assert next_granted.epoch > granted.epoch
    assert holder is not None


async def test_lead_passes_on_other_postgres(nats_url: str, other_dsn: str) -> None:
    async with world(nats_url) as around:
        async with scheduler(nats_url, other_dsn):
            await around.add_node("alpha", 1)
            granted = await around.granted(await around.request())
        async with scheduler(nats_url, other_dsn):
            accepted(await around.release(granted))
            await around.granted(await around.request())
        async with ledger(other_dsn) as connection:
            terms = await connection.fetchval("SELECT term FROM leader")

    assert terms == 2


async def test_services_make_equal_tables_elsewhere(other_dsn: str, postgres_dsn: str) -> None:
    for dsn in (other_dsn, postgres_dsn):
        for schema, migrations in MIGRATIONS.items():
            for _ in range(2):
                database = Database(dsn, schema, migrations)
                await database.open()
                await database.close()

    assert await described(other_dsn) == await described(postgres_dsn)
    assert len(await described(other_dsn)) > 100
