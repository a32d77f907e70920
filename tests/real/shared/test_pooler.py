"""A pooler between a service and Postgres is recognised, and refused with the reason."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.postgres.database import Database
from shared.postgres.pooler import LOST_ROLE, TRANSACTION_POOLER, PoolerRefused
from shared.testing import PostgresServer, short_directory
from tests.support.postgres.bouncer import needs_bouncer, pg_bouncer

IGNORED = "role,search_path,application_name,idle_in_transaction_session_timeout"


@pytest.fixture
async def directory() -> AsyncIterator[Path]:
    with short_directory() as path:
        yield path


@needs_bouncer
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        pytest.param({"pool_mode": "transaction"}, TRANSACTION_POOLER, id="transaction mode"),
        pytest.param(
            {"pool_mode": "transaction", "default_pool_size": "1"},
            TRANSACTION_POOLER,
            id="one server connection",
        ),
        pytest.param({"pool_mode": "session"}, LOST_ROLE, id="session mode"),
        pytest.param(
            {"pool_mode": "session", "ignore_startup_parameters": IGNORED},
            LOST_ROLE,
            id="session mode that drops the role",
        ),
    ],
)
async def test_pooler_is_refused_with_the_reason(
    postgres_server: PostgresServer,
    postgres_dsn: str,
    directory: Path,
    settings: dict[str, str],
    reason: str,
) -> None:
    async with pg_bouncer(postgres_server, postgres_dsn, directory, **settings) as dsn:
        database = Database(dsn, "results", ())

        with pytest.raises(PoolerRefused) as refused:
            async with asyncio.timeout(20):
                await database.open()

    assert str(refused.value) == reason


async def test_postgres_itself_is_not_taken_for_a_pooler(postgres_dsn: str) -> None:
    database = Database(postgres_dsn, "results", ())

    await database.open()

    await database.close()
