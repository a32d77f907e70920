"""The column `record` of a row, which holds the whole of it."""

from typing import TypeVar

from shared.postgres.database import Connection, from_json

R = TypeVar("R")


async def select_one(
    connection: Connection, type_: type[R], query: str, *arguments: object
) -> R | None:
    record = await connection.fetchval(query, *arguments)
    return from_json(record, type_) if record is not None else None


async def select_all(
    connection: Connection, type_: type[R], query: str, *arguments: object
) -> list[R]:
    rows = await connection.fetch(query, *arguments)
    return [from_json(row["record"], type_) for row in rows]
