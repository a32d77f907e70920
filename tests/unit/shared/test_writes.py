"""Writes that go to Postgres together, as one statement."""

from typing import Any

from shared.postgres.writes import Writes


class Recording:
    """A connection that records what it is given."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[Any, ...]]] = []

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        self.sent.append((query, args))
        return []


async def test_parameters_follow_each_other() -> None:
    writes, connection = Writes(), Recording()
    await writes.execute("UPDATE a SET x = $2 WHERE y = $1", ["y"], "x")
    await writes.execute("INSERT INTO b SELECT unnest($1)", ["b"])

    await writes.fetch_last(connection, "INSERT INTO c VALUES ($1) RETURNING $1", 3)  # type: ignore[arg-type]  # of a connection only this

    assert connection.sent == [
        (
            (
                "WITH write_0 AS (UPDATE a SET x = $2 WHERE y = $1), "
                "write_1 AS (INSERT INTO b SELECT unnest($3)) "
                "INSERT INTO c VALUES ($4) RETURNING $4"
            ),
            (["y"], "x", ["b"], 3),
        )
    ]


async def test_the_same_write_again_adds_to_its_columns() -> None:
    writes, connection, first = Writes(), Recording(), ["a"]
    await writes.execute("INSERT INTO b SELECT unnest($1)", first)
    await writes.execute("INSERT INTO b SELECT unnest($1)", ["b"])

    await writes.send(connection)  # type: ignore[arg-type]  # as above
    await writes.send(connection)  # type: ignore[arg-type]  # as above

    assert first == ["a"]
    assert connection.sent == [
        ("WITH write_0 AS (INSERT INTO b SELECT unnest($1)) SELECT", (["a", "b"],))
    ]
