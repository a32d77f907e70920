"""What is read of a stored table is named, column by column.

A newer release adds columns while an older one still runs: by `*` the older one would be given what
it has no field for, and its prepared statements would no longer hold.
"""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.paths import ROOT

TABLE: Final = re.compile(r"CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(\w+)")
OF_ALL: Final = re.compile(
    r"\bSELECT\s+(?:DISTINCT\s+)?\*\s*(?:,[^()]*?)?\bFROM\s+(?:ONLY\s+)?(\w+)"
)
OF_ONE: Final = re.compile(r"\b(\w+)\.\*(?!\d)")
SQL: Final = re.compile(r"\b(?:CREATE|SELECT|RETURNING)\s")
RETURNED: Final = re.compile(r"\bRETURNING\s+(?:\w+\.)?\*")


def texts(module: str) -> Iterator[str]:
    """The texts of a module, what is put into them left out."""
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def stars(text: str, tables: frozenset[str]) -> Iterator[str]:
    """Where a text takes all columns of a stored table, however it calls that."""
    yield from RETURNED.findall(text)
    yield from (f"SELECT * FROM {name}" for name in OF_ALL.findall(text) if name in tables)
    for name in OF_ONE.findall(text):
        called = re.search(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+(\w+)\s+(?:AS\s+)?{name}\b", text)
        if (called[1] if called is not None else name) in tables:
            yield f"{name}.*"


@pytest.mark.parametrize(
    ("service", "known"),
    [
        ("gateway", {"event", "token"}),
        ("orchestrator", {"attempt", "task"}),
        ("results", {"attempt", "tick"}),
        ("scheduler", {"device", "reservation"}),
    ],
)
def test_no_statement_selects_all_columns(service: str, known: set[str]) -> None:
    found = {
        path.relative_to(ROOT).as_posix(): list(texts(text))
        for folder in ("shared/postgres", f"services/{service}")
        for path in (ROOT / folder).rglob("*.py")
        if SQL.search(text := path.read_text())  # parsing takes time
    }
    tables = frozenset(
        name for of_file in found.values() for text in of_file for name in TABLE.findall(text)
    )

    taken = [
        f"{path}: {star}"
        for path, of_file in found.items()
        for text in of_file
        for star in stars(text, tables)
    ]

    assert known <= tables
    assert taken == []


def test_select_star_is_found_by_any_table_name() -> None:
    tables = frozenset({"device", "drift"})

    taken = {
        text: list(stars(text, tables))
        for text in (
            "SELECT * FROM drift WHERE node_id = $1",
            "SELECT d.*, h.since FROM device d LEFT JOIN holding h USING (device_no)",
            "SELECT device.*, 1 AS one FROM device",
            "DELETE FROM drift RETURNING *",
            "SELECT had.* FROM (SELECT node_id FROM device) AS had",
            "SELECT * FROM unnest($1::text[])",
            "SELECT 2 * count(*) FROM device",
        )
    }

    assert [bool(stars) for stars in taken.values()] == [True] * 4 + [False] * 3, taken
