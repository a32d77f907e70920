"""A Postgres of its own for what results stores."""

import asyncpg

from services.results.app import create_service
from services.results.settings import ResultsSettings
from shared.testing import PostgresServer, database_of


async def schemas_of(dsn: str) -> set[str]:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch("SELECT nspname FROM pg_namespace")
    finally:
        await connection.close()
    return {row["nspname"] for row in rows}


async def test_results_are_kept_where_their_own_dsn_leads(
    nats_url: str, postgres_server: PostgresServer
) -> None:
    async with database_of(postgres_server) as dsn, database_of(postgres_server) as own_dsn:
        settings = ResultsSettings(nats_url=nats_url, postgres_dsn=dsn, dsn=own_dsn)
        async with create_service(settings).running():
            assert "results" in await schemas_of(own_dsn)
            assert "results" not in await schemas_of(dsn)
