"""A real Postgres that speaks TLS, which the embedded one cannot: Debian's `postgresql`."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from shared.local_platform.embedded.postgres_home import database_identity
from shared.processes.child_process import ChildProcess
from shared.testing import eventually, short_directory
from shared.tls.contexts import ServerFiles
from tests.support.ports import free_port, is_open

PROGRAMS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))

needs_postgres_with_tls = pytest.mark.skipif(
    not PROGRAMS, reason="needs a Postgres built with TLS: Debian's package postgresql"
)


@asynccontextmanager
async def encrypted_postgres(files: ServerFiles | None) -> AsyncIterator[int]:
    """The port of a server on 127.0.0.1 that lets everybody in; without `files` in plain text."""
    run_as = database_identity() if os.geteuid() == 0 else None
    with short_directory() as directory:
        settings = {"unix_socket_directories": "", "fsync": "off"}
        if files is not None:
            copies = [directory / "server.pem", directory / "server.key"]
            for path, copied in zip((files.certificate, files.key), copies, strict=True):
                shutil.copy(path, copied)
                copied.chmod(0o600)
            settings |= {
                "ssl": "on",
                "ssl_cert_file": str(copies[0]),
                "ssl_key_file": str(copies[1]),
            }
        if run_as is not None:
            for path in (directory, *directory.iterdir()):
                os.chown(path, run_as.uid, run_as.gid)
        log, port, data = directory / "log", free_port(), directory / "data"
        options: dict[str, object] = {
            "env": {},
            "cwd": directory,
            "run_as": run_as,
            "log_path": log,
        }
        programs = PROGRAMS[-1].parent
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"]
        made = ChildProcess.spawn("initdb", initdb, **options)  # type: ignore[arg-type]  # by name
        assert await made.wait() == 0, log.read_text()
        words = [f"-c{name}={value}" for name, value in settings.items()]
        server = ChildProcess.spawn(
            "postgres",
            [str(programs / "postgres"), "-D", str(data), "-h127.0.0.1", f"-p{port}", *words],
            **options,  # type: ignore[arg-type]  # as above
        )
        try:
            await eventually(lambda: is_open(port), within_seconds=20, what="Postgres to listen")
            yield port
        finally:
            server.kill()
            await asyncio.shield(server.wait())
