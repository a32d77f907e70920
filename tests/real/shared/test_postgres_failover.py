"""Two real servers: the one that takes writes is found, also when it is another one than before."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from schemas.errors import Accepted
from schemas.scheduler.devices import Uncordon
from services.scheduler.ledger.migrations import MIGRATIONS
from services.scheduler.ledger.timeline import EPOCHS_PER_TIMELINE, draw_epochs
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.postgres import commands, connecting
from shared.postgres import database as database_module
from shared.postgres.connecting import NoServerTakesWrites, connect
from shared.postgres.database import Connection, Database
from shared.testing import eventually, short_directory
from tests.support.ports import free_port
from tests.support.postgres.pair import Pair, postgres_pair


@pytest.fixture
async def directory() -> AsyncIterator[Path]:
    with short_directory() as path:
        yield path


async def port_of(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    try:
        return int(await connection.fetchval("SELECT inet_server_port()"))
    finally:
        await connection.close()


async def write(database: Database) -> int:
    """Write a row; return the port of the server that has it."""
    async with database.transaction() as connection:
        await connection.execute("INSERT INTO relay_state VALUES ($1, now())", str(new_id()))
        return int(await connection.fetchval("SELECT inet_server_port()"))


async def write_again_until_taken(database: Database) -> float:
    """Seconds until a server takes a write."""
    began_at = time.monotonic()

    async def is_taken() -> bool:
        try:
            await write(database)
        except UnavailableError:
            return False
        return True

    await eventually(is_taken, within_seconds=30, every_seconds=0.05, what="a write to be taken")
    return time.monotonic() - began_at


async def test_the_server_that_takes_writes_is_found(directory: Path) -> None:
    async with postgres_pair(directory) as pair:
        primary, standby = pair.primary, pair.standby

        assert await port_of(await connect(pair.dsn)) == primary.port  # a standby comes first

        nobody = f"127.0.0.1:{free_port()}"
        dsn = f"postgresql://postgres@{nobody},{standby.address},{primary.address}/gpusteward"
        assert await port_of(await connect(dsn)) == primary.port

        with standby.hanging():  # asyncpg alone waits for it until its timeout is over
            began_at = time.monotonic()
            assert await port_of(await connect(pair.dsn)) == primary.port
            assert time.monotonic() - began_at < connecting.ATTEMPT_SECONDS / 2

        dsn = f"postgresql://postgres@{nobody},{standby.address}/gpusteward"
        with pytest.raises(NoServerTakesWrites) as refused:
            await connect(dsn)
        assert nobody in str(refused.value)
        assert f"{standby.address}: takes no writes" in str(refused.value)


async def test_writes_go_on_at_the_promoted_standby(directory: Path) -> None:
    async with postgres_pair(directory) as pair:
        database = Database(pair.dsn, "results", ())
        await database.open()
        await asyncio.gather(*(write(database) for _ in range(4)))  # several connections

        await pair.primary.crash()
        await pair.standby.promote()

        assert await write_again_until_taken(database) < 5
        assert await write(database) == pair.standby.port
        await database.close()


async def test_demoted_primary_that_answers_is_left(directory: Path) -> None:
    async with postgres_pair(directory) as pair:
        await pair.primary.run_statement("ALTER SYSTEM RESET synchronous_standby_names")
        await pair.primary.run_statement("SELECT pg_reload_conf()")
        database = Database(pair.dsn, "results", ())
        await database.open()
        await asyncio.gather(*(write(database) for _ in range(4)))

        await pair.primary.run_statement("ALTER SYSTEM SET default_transaction_read_only = on")
        await pair.primary.run_statement("SELECT pg_reload_conf()")
        await pair.standby.promote()
        refusals = [
            answer
            for answer in [
                await asyncio.gather(write(database), return_exceptions=True) for _ in range(6)
            ]
            if isinstance(answer[0], UnavailableError)
        ]

        assert len(refusals) <= 1  # by it all connections to the old primary are left
        assert await write(database) == pair.standby.port
        await database.close()


@pytest.mark.long
async def test_primary_that_hangs_is_left_once_another_is_promoted(directory: Path) -> None:
    """As a host that is cut off: connections to it neither answer nor end."""
    async with postgres_pair(directory) as pair:
        database = Database(pair.dsn, "results", ())
        await database.open()
        await asyncio.gather(*(write(database) for _ in range(4)))

        with pair.primary.hanging():
            await pair.standby.promote()
            seconds = await write_again_until_taken(database)

        assert seconds < 15  # one statement's timeout, not one for each connection
        assert await write(database) == pair.standby.port
        await database.close()


async def test_an_answer_is_given_again_only_once_replicated(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby is away, so the commit waits; the client gives up, and Postgres then shows it."""
    monkeypatch.setattr(database_module, "COMMAND_TIMEOUT_SECONDS", 1.0)
    async with postgres_pair(directory) as pair:
        database = Database(pair.dsn, "results", ())
        await database.open()
        command = Uncordon(command_id=new_id(), node_id="alpha")

        async def apply(_: Connection) -> Accepted:
            return Accepted(command_id=command.command_id)

        with pair.standby.hanging():
            for _ in range(3):
                with pytest.raises(UnavailableError):
                    await commands.once(database, command, apply)
            async with database.statements() as connection:
                assert await connection.fetchval("SELECT count(*) FROM command") == 1

        await eventually(lambda: answers(database, command), what="an answer")
        await database.close()


async def answers(database: Database, command: Uncordon) -> bool:
    async def never(_: Connection) -> Accepted:
        raise AssertionError("applied twice")

    try:
        return isinstance(await commands.once(database, command, never), Accepted)
    except UnavailableError:
        return False


async def test_lost_epochs_are_not_drawn_again(directory: Path) -> None:
    """An asynchronous standby that has not received the last ones is promoted."""
    async with postgres_pair(directory, is_synchronous=False) as pair:
        database = Database(pair.dsn, "scheduler", MIGRATIONS)
        await database.open()
        kept = [await draw(database, 1), await draw(database, 2)]
        await stop_receiving(pair)
        lost = [await draw(database, 1) for _ in range(3)]

        await pair.primary.crash()
        await pair.standby.promote()
        await write_again_until_taken(database)
        drawn = [await draw(database, 1), await draw(database, 2)]

        assert (kept, lost) == ([1, 3], [4, 5, 6])
        assert drawn == [EPOCHS_PER_TIMELINE + 4, EPOCHS_PER_TIMELINE + 6]
        await database.close()


async def draw(database: Database, count: int) -> int:
    async with database.transaction() as connection:
        statement = f"UPDATE epoch SET {draw_epochs('$1')} RETURNING value"
        return int(await connection.fetchval(statement, count))


async def stop_receiving(pair: Pair) -> None:
    """Have the standby receive no more of the primary, once it has all there is."""
    connection = await asyncpg.connect(pair.primary.dsn)
    sent = "SELECT flush_lsn = pg_current_wal_flush_lsn() FROM pg_stat_replication"
    try:
        await eventually(lambda: connection.fetchval(sent), what="all to be sent")
        await pair.standby.run_statement("ALTER SYSTEM SET primary_conninfo = ''")
        await pair.standby.run_statement("SELECT pg_reload_conf()")
        gone = "SELECT count(*) = 0 FROM pg_stat_replication"
        await eventually(lambda: connection.fetchval(gone), what="the standby to leave")
    finally:
        await connection.close()
