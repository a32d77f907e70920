"""Types of Postgres are described to a process once, and those of a database by that database."""

from typing import Final
from uuid import UUID

from shared.postgres.database import Database

ID: Final = UUID(int=7)
# asyncpg's question what a type is; nothing else here is recursive.
QUESTIONS: Final = """
SELECT count(*) FROM pg_prepared_statements WHERE ltrim(statement, E' \\n') LIKE 'WITH RECURSIVE%'
"""


def database(dsn: str, colours: str) -> Database:
    return Database(dsn, "paint", [f"CREATE TYPE colour AS ENUM ({colours})"])


async def test_second_connection_knows_array_types(
    postgres_dsn: str,
) -> None:
    questions = []
    for _ in range(2):
        opened = database(postgres_dsn, "'red'")
        await opened.open()
        async with opened.statements() as connection:
            found = await connection.fetchrow(
                "SELECT $1::uuid[], '{[1,3),[5,6)}'::int8multirange AS cells", [ID]
            )
            questions.append(await connection.fetchval(QUESTIONS))
        await opened.close()

        assert found is not None
        assert found[0] == [ID]
        assert [(each.lower, each.upper) for each in found["cells"]] == [(1, 3), (5, 6)]
    assert questions[1] == 0


async def test_type_of_database_is_queried_each_time(postgres_dsn: str) -> None:
    """Its id is another type's in another database."""
    for _ in range(2):
        opened = database(postgres_dsn, "'red'")
        await opened.open()
        async with opened.statements() as connection:
            found = await connection.fetchval("SELECT enum_range(NULL::colour)")
            asked = await connection.fetchval(QUESTIONS)
        await opened.close()

        assert found == ["red"]
        assert asked >= 1
