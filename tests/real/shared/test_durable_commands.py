"""The order in which durable commands reach their owner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from schemas.base import Command
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import FenceReservation
from schemas.scheduler.reservations import CancelReservation
from shared.errors import RefusedError, UnavailableError
from shared.ids import new_id
from shared.messaging.bus import Bus, command_route
from shared.postgres import commands
from shared.postgres.commands import send_later
from shared.postgres.database import Connection, Database
from shared.service import Service
from shared.testing import eventually


@dataclass
class Owner:
    """Takes commands in, in the order they come, and refuses what it is told to."""

    failures: dict[str, list[Exception]] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    async def cancel(self, command: CancelReservation) -> Reply:
        self.tried.append(command.reason)
        await self.answers.wait()
        if failures := self.failures.get(command.reason):
            raise failures.pop(0)
        self.taken.append(command.reason)
        return Accepted(command_id=command.command_id)


@dataclass
class Sender:
    """A service that keeps commands for others."""

    service: Service
    replies: list[Reply] = field(default_factory=list)
    unanswerable: set[UUID] = field(default_factory=set)
    is_answered: asyncio.Event = field(default_factory=asyncio.Event)
    change: str = "SELECT pg_advisory_xact_lock(1)"  # of a reply, in its transaction

    async def keep(self, *commands: Command) -> None:
        assert self.service.database is not None
        async with self.service.database.transaction() as connection:
            await send_later(connection, *commands)


@asynccontextmanager
async def sending(nats_url: str, dsn: str) -> AsyncIterator[Sender]:
    async def on_reply(connection: Connection, command: Command, reply: Reply) -> None:
        sender.is_answered.set()
        await connection.execute(sender.change)
        if command.command_id in sender.unanswerable:
            raise ZeroDivisionError
        sender.replies.append(reply)

    service = Service(
        "orchestrator",
        bus=Bus("orchestrator", nats_url),
        database=Database(dsn, "orchestrator", ()),
        on_reply=on_reply,
    )
    sender = Sender(service)
    async with service.running():
        yield sender


@asynccontextmanager
async def owning(nats_url: str, owner: Owner) -> AsyncIterator[None]:
    service = Service(
        "scheduler",
        bus=Bus("scheduler", nats_url),
        routes=[command_route(owner.cancel, CancelReservation)],
    )
    async with service.running():
        yield


def cancel(reason: str) -> CancelReservation:
    return CancelReservation(command_id=new_id(), reservation_id=new_id(), reason=reason)


async def test_commands_of_one_owner_keep_their_order(nats_url: str, postgres_dsn: str) -> None:
    owner = Owner()
    async with owning(nats_url, owner), sending(nats_url, postgres_dsn) as sender:
        await sender.keep(*(cancel(f"{number}") for number in range(20)))

        await eventually(lambda: len(sender.replies) == 20)

    assert owner.taken == [f"{number}" for number in range(20)]


async def test_kept_command_does_not_overtake(nats_url: str, postgres_dsn: str) -> None:
    """The earlier one waits out its back-off when the later one is kept and the owner returns."""
    owner = Owner()
    async with sending(nats_url, postgres_dsn) as sender:
        await sender.keep(cancel("earlier"))
        database = sender.service.database
        assert database is not None

        async def waits_long() -> bool:
            return bool(await database.pool.fetchval("SELECT attempts >= 3 FROM outgoing"))

        await eventually(waits_long)
        async with owning(nats_url, owner):
            await sender.keep(cancel("later"))
            await eventually(lambda: len(sender.replies) == 2)

    assert owner.taken == ["earlier", "later"]


async def test_owner_without_database_delays_later_ones(nats_url: str, postgres_dsn: str) -> None:
    owner = Owner(failures={"earlier": [UnavailableError("postgres is away")]})
    async with owning(nats_url, owner), sending(nats_url, postgres_dsn) as sender:
        await sender.keep(cancel("earlier"), cancel("later"))

        await eventually(lambda: len(sender.replies) == 2)

    assert owner.taken == ["earlier", "later"]
    assert owner.tried == ["earlier", "earlier", "later"]


async def test_unreadable_answer_is_repeated_alone(nats_url: str, postgres_dsn: str) -> None:
    owner = Owner()
    async with owning(nats_url, owner), sending(nats_url, postgres_dsn) as sender:
        broken = cancel("broken")
        sender.unanswerable.add(broken.command_id)
        await sender.keep(broken, cancel("later"))
        await eventually(lambda: len(sender.replies) == 1)
        assert owner.taken[:2] == ["broken", "later"]

        sender.unanswerable.clear()
        await eventually(lambda: len(sender.replies) == 2)


async def test_a_stop_under_way_holds_up_nothing(nats_url: str, postgres_dsn: str) -> None:
    still = [RefusedError(ErrorCode.STILL_RUNNING, "not yet") for _ in range(2)]
    owner = Owner(failures={"stop": list(still)})
    async with owning(nats_url, owner), sending(nats_url, postgres_dsn) as sender:
        await sender.keep(cancel("stop"), cancel("another"))

        await eventually(lambda: len(sender.replies) == 2)

    assert owner.taken == ["another", "stop"]
    assert not any(isinstance(reply, Refused) for reply in sender.replies)


async def test_silent_node_delays_no_other_owner(
    nats_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "REQUEST_TIMEOUT_SECONDS", 300.0)
    owner = Owner()
    async with owning(nats_url, owner), sending(nats_url, postgres_dsn) as sender:
        away = FenceReservation(
            command_id=new_id(), executor_id="away", reservation_id=new_id(), epoch=1
        )
        await sender.keep(away, cancel("present"))

        await eventually(lambda: owner.taken == ["present"])


async def test_command_kept_during_its_answer_is_no_lock(nats_url: str, postgres_dsn: str) -> None:
    """What the answer changes is locked by a transaction that keeps the same command once more."""
    owner = Owner()
    async with owning(nats_url, owner), sending(nats_url, postgres_dsn) as sender:
        database = sender.service.database
        assert database is not None
        command = cancel("kept twice")
        async with database.transaction() as connection:
            await connection.execute(sender.change)
            await sender.keep(command)
            await asyncio.wait_for(sender.is_answered.wait(), 30)
            await send_later(connection, command)
        await eventually(lambda: len(sender.replies) == 1)

    assert owner.taken == ["kept twice"]


async def test_reply_applied_by_another_is_not_repeated(nats_url: str, postgres_dsn: str) -> None:
    """A restarted service and its last life may both have sent, and that one is ahead."""
    owner = Owner()
    owner.answers.clear()
    async with owning(nats_url, owner), sending(nats_url, postgres_dsn) as sender:
        database = sender.service.database
        assert database is not None
        await database.pool.execute("CREATE TABLE applied (at timestamptz DEFAULT now())")
        sender.change = "INSERT INTO applied DEFAULT VALUES"
        await sender.keep(cancel("sent twice"))
        await eventually(lambda: owner.tried == ["sent twice"])
        async with database.transaction() as connection:
            await connection.execute("DELETE FROM outgoing")
            owner.answers.set()
            await eventually(lambda: len(sender.replies) == 1)
        await sender.keep(cancel("later"))
        await eventually(lambda: len(sender.replies) == 2)

        async def is_forgotten() -> bool:
            return not await database.pool.fetchval("SELECT count(*) FROM outgoing")

        await eventually(is_forgotten)
        assert await database.pool.fetchval("SELECT count(*) FROM applied") == 1
