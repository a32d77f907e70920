"""The protocol between services, over a real nats-server and Postgres."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import nats
import pytest
from nats.aio.msg import Msg

from schemas.backlog import Backlog, GetSchedulerBacklog
from schemas.base import Command, subject_for
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.scheduler.reservations import CancelReservation, ReservationLost, ReservationReleased
from schemas.scheduler.views import GetReservation, ReservationView
from schemas.telemetry.readings import GetSnapshot, GpuReading, GpuSampled, Source
from shared.clock import utcnow
from shared.errors import (
    NodeUnavailableError,
    PermanentError,
    RefusedError,
    UnavailableError,
)
from shared.ids import new_id
from shared.messaging.bus import Bus, command_route, event_route, query_route
from shared.messaging.codec import encode
from shared.postgres.commands import once, send_later
from shared.postgres.database import Connection, Database
from shared.postgres.outbox import outbox_age_seconds, stage
from shared.service import Service
from shared.testing import NatsServer, eventually
from tests.support.bus import connected_bus

MIGRATIONS = ("CREATE TABLE ended (reservation_id uuid PRIMARY KEY, times int NOT NULL);",)
FAR_WEST = timezone(-timedelta(hours=23))


def make_released(reservation_id: UUID | None = None) -> ReservationReleased:
    return ReservationReleased(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=3,
        reservation_id=reservation_id or new_id(),
        namespace="default",
        holder="test",
    )


@dataclass
class Owner:
    """Stands for a service that owns reservations: it stores, answers and tells."""

    database: Database
    refusals: int = 0

    async def cancel(self, command: CancelReservation) -> Reply:
        async def apply(connection: Connection) -> Accepted:
            if command.reason == "refuse":
                raise RefusedError(
                    ErrorCode.NOT_FOUND, "no such reservation", path="$.reservation_id"
                )
            if command.reason == "fail once" and self.refusals == 0:
                self.refusals += 1
                raise RefusedError(ErrorCode.STILL_RUNNING, "not yet")
            await connection.execute(
                "INSERT INTO ended VALUES ($1, 1) ON CONFLICT (reservation_id)"
                " DO UPDATE SET times = ended.times + 1",
                command.reservation_id,
            )
            await stage(connection, make_released(command.reservation_id))
            return Accepted(command_id=command.command_id, revision=1)

        return await once(self.database, command, apply)

    async def get(self, query: GetReservation) -> ReservationView:
        raise RefusedError(ErrorCode.NOT_FOUND, f"no reservation {query.reservation_id}")

    async def crash(self, query: GetSnapshot) -> GpuSampled:
        if query.use_cache:
            raise ZeroDivisionError
        return GpuSampled(
            node_id=query.node_id,
            boot_id=new_id(),
            sequence=1,
            observed_at=utcnow(),
            interval_seconds=1.0,
            source=Source.SIMULATED,
            gpus=(GpuReading(uuid="GPU-0", index=0),),
        )


@dataclass
class Heard:
    """What a consumer was given, and how it is to behave."""

    events: list[UUID] = field(default_factory=list)
    fail: Callable[[int], Exception | None] = lambda _: None
    calls: int = 0

    async def on_ended(self, event: ReservationReleased | ReservationLost) -> None:
        self.calls += 1
        if error := self.fail(self.calls):
            raise error
        self.events.append(event.reservation_id)


@asynccontextmanager
async def owner_service(url: str, dsn: str) -> AsyncIterator[Service]:
    database = Database(dsn, "scheduler", MIGRATIONS)
    owner = Owner(database)
    service = Service(
        "scheduler",
        bus=Bus("scheduler", url),
        database=database,
        routes=[
            command_route(owner.cancel, CancelReservation),
            query_route(owner.get, GetReservation),
            query_route(owner.crash, GetSnapshot, key="n1"),
        ],
    )
    async with service.running():
        yield service


@asynccontextmanager
async def listener_service(url: str, dsn: str, heard: Heard) -> AsyncIterator[Service]:
    service = Service(
        "orchestrator",
        bus=Bus("orchestrator", url),
        database=Database(dsn, "orchestrator", ()),
        routes=[
            event_route(
                heard.on_ended,
                ReservationReleased,
                ReservationLost,
                durable="orchestrator_on_ended",
            )
        ],
    )
    async with service.running():
        yield service


def cancel(reason: str = "") -> CancelReservation:
    return CancelReservation(command_id=new_id(), reservation_id=new_id(), reason=reason)


async def test_repeated_command_gets_the_same_answer(nats_url: str, postgres_dsn: str) -> None:
    async with owner_service(nats_url, postgres_dsn) as service:
        command = cancel()

        first = await service.bus.request(command)
        second = await service.bus.request(command)

        assert first == second == Accepted(command_id=command.command_id, revision=1)
        assert service.database is not None
        assert await service.database.pool.fetchval("SELECT times FROM ended") == 1


async def test_reused_command_id_is_refused(nats_url: str, postgres_dsn: str) -> None:
    async with owner_service(nats_url, postgres_dsn) as service:
        command = cancel()
        await service.bus.request(command)

        other = msgspec.structs.replace(command, reservation_id=new_id())
        reply = await service.bus.request(other)

        assert isinstance(reply, Refused)
        assert reply.code is ErrorCode.COMMAND_ID_REUSED


async def test_final_refusal_is_remembered(nats_url: str, postgres_dsn: str) -> None:
    async with owner_service(nats_url, postgres_dsn) as service:
        command = cancel("refuse")

        first = await service.bus.request(command)
        second = await service.bus.request(command)

        assert isinstance(first, Refused)
        assert first == second
        assert (first.code, first.path) == (ErrorCode.NOT_FOUND, "$.reservation_id")
        assert service.database is not None
        assert await service.database.pool.fetchval("SELECT count(*) FROM ended") == 0


async def test_command_without_reply_is_told_by_event(nats_url: str, postgres_dsn: str) -> None:
    heard = Heard()
    async with (
        owner_service(nats_url, postgres_dsn),
        listener_service(nats_url, postgres_dsn, heard),
    ):
        command = cancel()
        client = await nats.connect(nats_url)

        await client.publish(subject_for(command), encode(command))

        await eventually(lambda: heard.events == [command.reservation_id])
        await client.close()


async def test_bad_input_is_refused_with_its_place(nats_url: str, postgres_dsn: str) -> None:
    async with owner_service(nats_url, postgres_dsn) as service:
        body = msgspec.msgpack.encode(
            {
                "type": "scheduler.cancel_reservation",
                "command_id": str(new_id()),
                "reservation_id": 7,
            }
        )
        client = await nats.connect(nats_url)

        raw = await client.request(subject_for(cancel()), body, timeout=30)
        await client.publish(subject_for(cancel()), b"\xc1 not msgpack")

        reply = msgspec.msgpack.decode(raw.data, type=Refused)
        assert (reply.code, reply.path) == (ErrorCode.BAD_REQUEST, "$.reservation_id")
        database = service.database
        assert database is not None

        async def kept() -> bool:
            return bool(await database.pool.fetchval("SELECT count(*) = 1 FROM dead_letter"))

        await eventually(kept)
        await client.close()


def untold(field: str) -> bytes:
    """A command with something else in one field."""
    return msgspec.msgpack.encode(msgspec.msgpack.decode(encode(cancel())) | {"type": field})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(untold("x" * 1_000_000), id="which its refusal would repeat"),
        pytest.param(b"\x81\xa1a" * 100_000 + b"\x00", id="nested too deeply"),
    ],
)
async def test_a_refusal_is_short_whatever_came(
    nats_url: str, postgres_dsn: str, body: bytes
) -> None:
    async with owner_service(nats_url, postgres_dsn) as service:
        raw = await service.bus.nats.request(subject_for(cancel()), body, timeout=30)

    reply = msgspec.msgpack.decode(raw.data, type=Refused)
    assert reply.code is ErrorCode.BAD_REQUEST
    assert len(raw.data) < 5_000


@pytest.mark.parametrize(
    "given",
    [
        pytest.param("a\0b", id="a text with NUL"),
        pytest.param(2**62, id="a number beyond its column"),
        pytest.param(datetime.max.replace(tzinfo=FAR_WEST), id="a time beyond the calendar"),
        pytest.param("".join(map(str, range(9_000))), id="a text too long for an index"),
    ],
)
async def test_unstorable_command_and_event_are_refused(
    nats_url: str, postgres_dsn: str, given: object
) -> None:
    async def store(connection: Connection) -> None:
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS held"
            " (a text, b int, c timestamptz, d text);"
            "CREATE INDEX IF NOT EXISTS held_d ON held (d)"
        )
        match given:
            case int():
                await connection.execute("INSERT INTO held (b) VALUES ($1)", given)
            case datetime():
                await connection.execute("INSERT INTO held (c) VALUES ($1)", given)
            case _:
                await connection.execute("INSERT INTO held (d) VALUES ($1)", given)

    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    calls: list[object] = []

    async def get(query: GetReservation) -> ReservationView:
        async with database.transaction() as connection:
            await store(connection)
        raise AssertionError

    async def on_released(event: ReservationReleased) -> None:
        calls.append(event)
        async with database.transaction() as connection:
            await store(connection)

    service = Service(
        "scheduler",
        bus=Bus("scheduler", nats_url),
        database=database,
        routes=[
            query_route(get, GetReservation),
            event_route(on_released, ReservationReleased, durable="scheduler_on_released"),
        ],
    )
    async with service.running():
        with pytest.raises(RefusedError) as refused:
            await service.bus.query(GetReservation(reservation_id=new_id()), ReservationView)
        await service.bus.publish_event(make_released())

        await dead_letters(database, 1)

    assert refused.value.code is ErrorCode.BAD_REQUEST
    assert len(calls) == 1


async def dead_letters(database: Database, count: int) -> None:
    async def are_kept() -> bool:
        return bool(await database.pool.fetchval("SELECT count(*) = $1 FROM dead_letter", count))

    await eventually(are_kept, what=f"{count} messages that were given up")


async def test_event_with_nul_in_its_error_is_given_up(nats_url: str, postgres_dsn: str) -> None:
    heard = Heard()
    async with listener_service(nats_url, postgres_dsn, heard) as service:
        hopeless, next_one = make_released(), make_released()
        body = msgspec.msgpack.decode(encode(hopeless)) | {"type": "a\0b"}
        subject = subject_for(hopeless)

        await service.bus.publish_stored(subject, msgspec.msgpack.encode(body), new_id())
        await service.bus.publish_event(next_one)

        await eventually(lambda: heard.events == [next_one.reservation_id])
        assert service.database is not None
        await dead_letters(service.database, 1)


async def test_a_query_is_answered_refused_or_unavailable(nats_url: str, postgres_dsn: str) -> None:
    async with owner_service(nats_url, postgres_dsn) as service:
        sample = await service.bus.query(GetSnapshot(node_id="n1"), GpuSampled)
        with pytest.raises(RefusedError) as refused:
            await service.bus.query(GetReservation(reservation_id=new_id()), ReservationView)
        with pytest.raises(RefusedError) as crashed:
            await service.bus.query(GetSnapshot(node_id="n1", use_cache=True), GpuSampled)
        with pytest.raises(UnavailableError):
            await service.bus.query(GetSnapshot(node_id="nobody"), GpuSampled, timeout_seconds=1)

        assert sample.gpus[0].utilization_percent is None
        assert refused.value.code is ErrorCode.NOT_FOUND
        assert crashed.value.code is ErrorCode.INTERNAL


async def test_peoples_queries_wait_for_restarting_service(
    nats_url: str, postgres_dsn: str
) -> None:
    asking = Bus("gateway", nats_url, awaits_services=True)
    await asking.open()
    command = cancel()
    pending = asyncio.create_task(asking.request(command))
    query = asyncio.create_task(
        asking.query(GetReservation(reservation_id=new_id()), ReservationView)
    )
    await asyncio.sleep(0)

    async with owner_service(nats_url, postgres_dsn):
        reply = await pending
        with pytest.raises(RefusedError, match="no reservation"):
            await query

    assert reply == Accepted(command_id=command.command_id, revision=1)
    await asking.close()


@pytest.mark.parametrize("awaits_services", [True, False])
async def test_silence_names_service_and_next_step(nats_url: str, awaits_services: bool) -> None:
    bus = Bus("gateway", nats_url, awaits_services=awaits_services)
    await bus.open()

    with pytest.raises(UnavailableError) as service:
        await bus.query(
            GetReservation(reservation_id=new_id()), ReservationView, timeout_seconds=0.3
        )
    with pytest.raises(NodeUnavailableError) as node:
        await bus.query(GetSnapshot(node_id="n9"), GpuSampled, timeout_seconds=60)

    assert str(service.value).startswith("the scheduler service does not answer; `gpusteward ")
    assert str(node.value).startswith("the telemetry service of node n9 does not answer; `gpus")
    await bus.close()


async def test_command_in_a_dead_hand_is_asked_again(nats_url: str) -> None:
    """Two processes share the commands; whoever takes the first one is killed with it."""
    asked: list[UUID] = []
    client = await nats.connect(nats_url)

    async def answer_the_second(raw: Msg) -> None:
        command = msgspec.msgpack.decode(raw.data, type=CancelReservation)
        asked.append(command.command_id)
        if len(asked) == 2:
            await raw.respond(encode(Accepted(command_id=command.command_id)))

    command = CancelReservation(command_id=new_id(), reservation_id=new_id())
    async with connected_bus(nats_url, "test") as bus:
        await client.subscribe(subject_for(command), cb=answer_the_second)
        await client.flush()
        answer = await bus.request(command)
    await client.close()

    assert answer == Accepted(command_id=command.command_id)
    assert asked == [command.command_id] * 2


async def test_durable_command_repeats_until_answered(nats_url: str, postgres_dsn: str) -> None:
    replies: list[Reply] = []

    async def on_reply(_: Connection, command: Command, reply: Reply) -> None:
        replies.append(reply)

    sender = Service(
        "orchestrator",
        bus=Bus("orchestrator", nats_url),
        database=Database(postgres_dsn, "orchestrator", ()),
        on_reply=on_reply,
    )
    async with sender.running():
        assert sender.database is not None
        command = cancel("fail once")
        async with sender.database.transaction() as connection:
            await send_later(connection, command)
        await asyncio.sleep(0.3)  # the owner is not there yet; at least one try has failed
        assert replies == []

        async with owner_service(nats_url, postgres_dsn):
            await eventually(lambda: len(replies) == 1)

    assert replies == [Accepted(command_id=command.command_id, revision=1)]


async def test_event_is_redelivered_then_given_up(nats_url: str, postgres_dsn: str) -> None:
    outside_down, hopeless = UnavailableError("down"), PermanentError("hopeless")
    heard = Heard(fail=lambda call: {1: outside_down, 2: None, 3: hopeless}.get(call))
    async with listener_service(nats_url, postgres_dsn, heard) as service:
        first, second, third = make_released(), make_released(), make_released()

        await service.bus.publish_event(first)
        await eventually(lambda: heard.events == [first.reservation_id])
        await service.bus.publish_event(second)
        await eventually(lambda: heard.calls == 3)
        await service.bus.publish_event(third)
        await eventually(lambda: heard.events == [first.reservation_id, third.reservation_id])

        assert service.database is not None
        errors = await service.database.pool.fetch("SELECT error FROM dead_letter")
        assert [row["error"] for row in errors] == ["hopeless"]


async def test_an_event_published_twice_is_stored_once(nats_url: str, postgres_dsn: str) -> None:
    heard = Heard()
    async with listener_service(nats_url, postgres_dsn, heard) as service:
        event, last = make_released(), make_released()

        await service.bus.publish_event(event)
        await service.bus.publish_event(event)
        await service.bus.publish_event(last)

        await eventually(lambda: last.reservation_id in heard.events)
        assert heard.events == [event.reservation_id, last.reservation_id]


async def test_service_tells_age_of_its_outbox(nats_url: str, postgres_dsn: str) -> None:
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    await database.open()
    async with database.transaction() as connection:
        await stage(connection, make_released())
        await connection.execute("UPDATE outbox SET created_at = now() - interval '90 seconds'")
    stuck = await outbox_age_seconds(database)
    await database.close()

    async with owner_service(nats_url, postgres_dsn) as service:

        async def is_published() -> bool:
            answer = await service.bus.query(GetSchedulerBacklog(), Backlog)
            return answer.outbox_age_seconds == 0

        await eventually(is_published, what="an empty outbox")

    assert stuck >= 90


async def test_events_survive_a_lost_bus_store(
    nats_server_factory: Callable[[], Awaitable[NatsServer]], postgres_dsn: str
) -> None:
    server = await nats_server_factory()
    url = server.authenticated_url
    heard = Heard()
    renewed: list[bool] = []
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    owner = Service("scheduler", bus=Bus("scheduler", url), database=database)

    async def told() -> None:
        renewed.append(True)

    consumer = Service(
        "orchestrator",
        bus=Bus("orchestrator", url),
        database=Database(postgres_dsn, "orchestrator", ()),
        routes=[event_route(heard.on_ended, ReservationReleased, durable="orchestrator_on_ended")],
        on_new_stream=told,
    )
    async with owner.running(), consumer.running():
        before, during = make_released(), make_released()
        async with database.transaction() as connection:
            await stage(connection, before)
        await eventually(lambda: before.reservation_id in heard.events)

        await server.crash_and_lose_store()
        async with database.transaction() as connection:
            await stage(connection, during)
        await server.start()

        await eventually(lambda: during.reservation_id in heard.events)
        await eventually(lambda: bool(renewed))
        await eventually(lambda: heard.events.count(before.reservation_id) == 2)


async def test_paused_process_loses_its_locks(nats_url: str, postgres_dsn: str) -> None:
    limits: list[str] = []

    async def pause_in(transaction: AbstractAsyncContextManager[Any]) -> None:
        async with transaction as connection:
            limits.append(await connection.fetchval("SHOW idle_in_transaction_session_timeout"))
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '10ms'")
            await eventually(connection.is_closed, what="Postgres to end the idle transaction")
            await connection.execute("SELECT 1")

    async with owner_service(nats_url, postgres_dsn) as service:
        assert service.database is not None
        with pytest.raises(UnavailableError):
            await pause_in(service.database.transaction())

    assert limits == ["10s"]


async def test_postgres_on_full_disk_tells_why(nats_url: str, postgres_dsn: str) -> None:
    async with owner_service(nats_url, postgres_dsn) as service:
        assert service.database is not None
        with pytest.raises(UnavailableError, match="the disk of Postgres is full: no room left"):
            async with service.database.transaction() as connection:
                await connection.execute(
                    "DO $$ BEGIN RAISE 'no room left' USING ERRCODE = 'disk_full'; END $$"
                )


async def test_service_survives_a_postgres_restart(nats_url: str, postgres_dsn: str) -> None:
    async with owner_service(nats_url, postgres_dsn) as service:
        assert service.database is not None
        await service.bus.request(cancel())
        admin = await asyncpg.connect(postgres_dsn)
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'gpusteward-%'"
        )
        await admin.close()

        async def accepted() -> bool:
            return isinstance(await service.bus.request(cancel()), Accepted)

        await eventually(accepted)


async def test_too_large_event_delays_none_behind_it(nats_url: str, postgres_dsn: str) -> None:
    heard = Heard()
    async with (
        owner_service(nats_url, postgres_dsn) as service,
        listener_service(nats_url, postgres_dsn, heard),
    ):
        assert service.database is not None
        pool = service.database.pool
        huge = msgspec.structs.replace(make_released(), reason="x" * (1 << 20))
        behind = make_released()

        async with service.database.transaction() as connection:
            await stage(connection, huge, behind)

        async def is_kept() -> bool:
            bodies = await pool.fetch("SELECT body FROM dead_letter")
            return [row["body"] for row in bodies] == [encode(huge)]

        await eventually(lambda: heard.events == [behind.reservation_id])
        await eventually(is_kept)


async def test_too_large_command_is_refused(nats_url: str, postgres_dsn: str) -> None:
    async with owner_service(nats_url, postgres_dsn) as service:
        reply = await service.bus.request(cancel("x" * (1 << 20)))

        assert isinstance(reply, Refused)
        assert reply.code is ErrorCode.TOO_LARGE
        assert isinstance(await service.bus.request(cancel()), Accepted)
