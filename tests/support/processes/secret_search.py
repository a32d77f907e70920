"""Where a secret may have come to lie: rows, files, processes."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.support.processes.platform import PlatformProcess


def is_in(content: object, secret: str) -> bool:
    """Also as the bytes that a database shows."""
    raw = content if isinstance(content, bytes) else str(content).encode()
    return secret.encode() in raw or secret.encode().hex().encode() in raw


async def everything_stored(platform: PlatformProcess) -> list[str]:
    """Every row of every service, as text."""
    async with platform.postgres() as connection:
        tables = await connection.fetch(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        return [
            row[0]
            for (table,) in tables
            for row in await connection.fetch(f"SELECT whole::text FROM {table} AS whole")
        ]


def contents_below(root: Path, but_not: Iterable[Path] = ()) -> Iterator[tuple[str, bytes]]:
    """Every file's path and content. One may go meanwhile, and a socket has none."""
    files = {Path(folder, name) for folder, _, names in os.walk(root) for name in names}
    for path in files - set(but_not):
        with suppress(OSError):
            yield str(path), path.read_bytes()


def process_texts() -> Iterator[tuple[int, str, bytes]]:
    """Arguments and environment of every process of this host that lets itself be read."""
    for directory in Path("/proc").glob("[0-9]*"):
        for kind in ("cmdline", "environ"):
            with suppress(OSError):
                yield int(directory.name), kind, (directory / kind).read_bytes()
