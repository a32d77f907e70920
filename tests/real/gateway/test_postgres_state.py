"""What a real primary and its standby say of themselves, to a login of few rights."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.gateway.domain.postgres_health import PostgresState, find_warnings
from services.gateway.ledger.migrations import MIGRATIONS
from services.gateway.ledger.postgres_state import read_postgres_state
from shared.postgres.database import Database
from shared.testing import eventually, short_directory
from tests.support.postgres.pair import postgres_pair


@pytest.fixture
async def directory() -> AsyncIterator[Path]:
    with short_directory() as path:
        yield path


async def read(database: Database) -> PostgresState:
    async with database.statements() as connection:
        return await read_postgres_state(connection)


async def warned(database: Database) -> set[str]:
    return {warning.code.value for warning in find_warnings(await read(database))}


async def test_standbys_are_told_as_they_are(directory: Path) -> None:
    async with postgres_pair(directory) as pair:
        primary = pair.primary
        database = Database(pair.dsn, "gateway", MIGRATIONS)
        await database.open()

        async def is_told(*codes: str) -> bool:
            return await warned(database) == set(codes)

        state = await read(database)
        assert (state.takes_writes, state.synchronous_names) == (True, "standby")
        assert [(one.name, one.is_known) for one in state.standbys] == [("standby", False)]
        assert await warned(database) == set()

        await primary.run_statement("GRANT pg_read_all_stats TO gpusteward_gateway")
        [standby] = (await read(database)).standbys
        assert (standby.state, standby.sync_state) == ("streaming", "sync")
        assert await warned(database) == set()

        await primary.run_statement("ALTER SYSTEM RESET synchronous_standby_names")
        await primary.run_statement("SELECT pg_reload_conf()")
        await eventually(lambda: is_told("postgres_asynchronous"), what="the standby's role")

        await primary.run_statement("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        await pair.standby.crash()
        await primary.run_statement("SELECT pg_reload_conf()")
        await eventually(lambda: is_told("postgres_standby_away"), what="the standby to be missed")

        await primary.run_statement("ALTER SYSTEM SET default_transaction_read_only = on")
        await primary.run_statement("SELECT pg_reload_conf()")

        async def is_read_only() -> bool:
            return not (await read(database)).takes_writes

        await eventually(is_read_only, what="a server that takes no writes")
        await database.close()
