"""A real PgBouncer before a test's Postgres; Debian's package `pgbouncer`."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.processes.child_process import ChildProcess
from shared.testing import PostgresServer, eventually
from tests.support.ports import free_port, is_open

PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")

needs_bouncer = pytest.mark.skipif(
    PROGRAM is None, reason="needs PgBouncer: Debian's package pgbouncer"
)


@asynccontextmanager
async def pg_bouncer(
    server: PostgresServer, dsn: str, directory: Path, **settings: str
) -> AsyncIterator[str]:
    """The DSN of the same database through a PgBouncer with these settings."""
    port, place = free_port(), server.place
    lines = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "any",
        **settings,
    }
    database = dsn.removeprefix("postgresql://postgres@/").split("?")[0]
    text = [
        "[databases]",
        f"* = host={place.socket_dir} user=postgres",
        "[pgbouncer]",
        *(f"{name} = {value}" for name, value in lines.items()),
    ]
    path = directory / "pgbouncer.ini"
    path.write_text("\n".join(text) + "\n")
    path.chmod(0o644)
    child = ChildProcess.spawn(
        "pgbouncer",
        [str(PROGRAM), str(path)],
        env={},
        log_path=directory / "pgbouncer.log",
        cwd=directory,
        run_as=place.run_as,
    )
    try:
        await eventually(lambda: is_open(port), within_seconds=10, what="PgBouncer to listen")
        yield f"postgresql://postgres@127.0.0.1:{port}/{database}"
    finally:
        child.kill()
        await asyncio.shield(child.wait())
