"""Images with which compose.yaml is brought up where there is no registry.

Ours is built from compose/Containerfile, on a base made of this interpreter, with packages from the
index. Those of the servers stand for what official images do: their programs are those of the
packages that we install, Postgres is Debian's, since ours speaks no TLS, their starting scripts do
what those images document. Prometheus is Python, by which a test asks what it would be asked for.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import docker
import docker.errors
import pytest

from services.cli.local_platform.image import DOCKERFILE, LOCKS
from shared.local_platform.embedded.nats_server import find_nats_server
from shared.testing import short_directory
from tests.support import distribution
from tests.support.docker import images
from tests.support.docker.images import REPOSITORY, ImageTar, import_image, key_of
from tests.support.kubernetes import binaries
from tests.support.paths import ROOT
from tests.support.patroni.install import PATRONI
from tests.support.postgres.encrypted import PROGRAMS

CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
BASE: Final = f"{REPOSITORY}/python:base"
OURS: Final = f"{REPOSITORY}/gpusteward:test"
OURS_WITH_SERVERS: Final = f"{REPOSITORY}/gpusteward:servers"
SERVERS: Final = {
    "STEWARD_IMAGE": OURS,
    "STEWARD_NATS_IMAGE": f"{REPOSITORY}/nats:compose",
    "STEWARD_POSTGRES_IMAGE": f"{REPOSITORY}/postgres:compose",
    "STEWARD_PROMETHEUS_IMAGE": f"{REPOSITORY}/prometheus:compose",
}
# What a build is told where packages come another way.
PATRONI_IMAGES: Final = {
    "STEWARD_PATRONI_IMAGE": f"{REPOSITORY}/patroni:compose",
    # A shell in its place: what is asked of the balancer is asked of a gateway.
    "STEWARD_BALANCER_IMAGE": f"{REPOSITORY}/balancer:compose",
}
PASSED: Final = (
    *("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
# What every distribution has, and packages with native parts count on.
COMMON_LIBRARIES: Final = (
    *("libc", "libdl", "libm", "libpthread", "libresolv", "librt", "libutil", "libnss_dns"),
    *("libgcc_s", "libstdc++"),
)
OUT_OF_REACH: Final = re.compile(
    "dns error|name resolution|Failed to establish|timed out", re.IGNORECASE
)
USER: Final = 10001
POSTGRES_PROGRAMS: Final = (
    *("initdb", "postgres", "psql", "pg_ctl", "pg_isready"),
    *("pg_basebackup", "pg_rewind", "pg_controldata"),
)
_POSTGRES_STARTS: Final = """#!/bin/sh
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    mkdir -p "$PGDATA"
    initdb --username=postgres --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    pg_ctl -w -o "-c listen_addresses= -c unix_socket_directories=/var/run/postgresql" start
    export PGHOST=/var/run/postgresql PGUSER=postgres
    psql -v ON_ERROR_STOP=1 -d postgres -c "CREATE DATABASE $POSTGRES_DB"
    for f in /docker-entrypoint-initdb.d/*.sql; do
        psql -v ON_ERROR_STOP=1 -d "$POSTGRES_DB" -f "$f"
    done
    pg_ctl -m fast -w stop
fi
exec "$@" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql
"""


def platform_images(client: docker.DockerClient, url: str) -> dict[str, str]:
    """Return the variables of .env that name them. Our own is built, which takes a minute; `url` is
    where the client's engine answers.
    """
    command = ["/usr/local/bin/nats-server", "--config", "/etc/nats/nats-server.conf"]
    import_image(
        client, SERVERS["STEWARD_NATS_IMAGE"], _nats, changes=[f"CMD {json.dumps(command)}"]
    )
    import_image(
        client,
        SERVERS["STEWARD_POSTGRES_IMAGE"],
        _postgres,
        key=key_of(__file__, images.__file__, _postgres_home() / "bin/postgres"),
        changes=[
            'ENTRYPOINT ["/entrypoint"]',
            'CMD ["postgres"]',
            "ENV PGDATA /var/lib/postgresql/18/docker",
            f"ENV PATH {_postgres_home()}/bin:/usr/bin:/bin",
        ],
    )
    import_image(
        client,
        SERVERS["STEWARD_PROMETHEUS_IMAGE"],
        _prometheus,
        key=key_of(__file__, images.__file__, Path(sys.executable)),
        changes=['CMD ["sleep", "86400"]'],
    )
    build_ours(client, url)
    return SERVERS


def high_availability_images(client: docker.DockerClient) -> None:
    """Build what stands for compose/ha/Containerfile, the same programs from other packages, and
    for the balancer.
    """
    import_image(client, PATRONI_IMAGES["STEWARD_BALANCER_IMAGE"], _balancer)
    import_image(
        client,
        PATRONI_IMAGES["STEWARD_PATRONI_IMAGE"],
        _patroni,
        key=key_of(
            __file__,
            images.__file__,
            _postgres_home() / "bin/postgres",
            Path(sys.executable),
            PATRONI.lock,
        ),
        changes=[
            "ENV PYTHONPATH /opt/patroni",
            f"ENV PATH {_postgres_home()}/bin:/usr/local/bin:/usr/bin:/bin",
        ],
    )


def _balancer(tar: ImageTar) -> None:
    tar.add_shell()
    tar.add_text("/usr/bin/caddy", "#!/bin/sh\nexec sleep 86400\n", mode=0o755)


def build_ours(client: docker.DockerClient, url: str) -> None:
    """Build both of our images, of a wheel and the locks. Skips where there is no page for it.

    By BuildKit where there is a program that has it: it stores what the images have and no step on
    the way there, and takes two thirds of the time. `url` is where the client's engine answers.
    """
    if reason := distribution.missing():
        pytest.skip(reason)
    import_image(
        client,
        BASE,
        _python,
        key=key_of(__file__, images.__file__, Path(sys.executable)),
        changes=[f"ENV SSL_CERT_FILE {CERTIFICATES}", f"ENV PIP_CERT {CERTIFICATES}"],
    )
    given = {name: os.environ[name] for name in PASSED if name in os.environ}
    arguments = {"BASE": BASE, "REVISION": "0" * 40, **given}
    program = _buildkit()
    with short_directory() as directory:
        distribution.build_wheel(directory / "dist")
        shutil.copy(ROOT / "compose/Containerfile", directory / DOCKERFILE)
        for name in LOCKS:
            shutil.copy(ROOT / name, directory)
        for target, tag in (("slim", OURS), ("image", OURS_WITH_SERVERS)):
            if program is not None:
                told = _build_by(program, url, directory, target, tag, arguments)
            else:
                told = _build_step_by_step(client, directory, target, tag, arguments)
            if told is None:
                continue
            if OUT_OF_REACH.search(told):
                pytest.skip("an image of ours needs a package index that can be reached")
            raise AssertionError(told[-4000:])


@cache
def _buildkit() -> str | None:
    """Return a `docker` that builds by BuildKit: Debian's of old, or one with its plugin buildx."""
    for folder in os.get_exec_path():
        if program := shutil.which("docker", path=folder):
            told = subprocess.run(
                [program, "build", "--help"],
                env={**os.environ, "DOCKER_BUILDKIT": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            if told.returncode == 0 and "--progress" in told.stdout:
                return program
    return None


def _build_by(
    program: str, url: str, directory: Path, target: str, tag: str, arguments: Mapping[str, str]
) -> str | None:
    """Return what it said where it failed; None where the image is there."""
    given = [
        word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")
    ]
    ended = subprocess.run(
        [
            *(program, "build", "--progress", "plain", "--network", "host"),
            *("--target", target, "--tag", tag, *given, str(directory)),
        ],
        env={**os.environ, "DOCKER_HOST": url, "DOCKER_BUILDKIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stderr if ended.returncode else None


def _build_step_by_step(
    client: docker.DockerClient, directory: Path, target: str, tag: str, arguments: dict[str, str]
) -> str | None:
    """Return what it said where it failed; None where the image is there."""
    try:
        client.images.build(
            path=str(directory),
            target=target,
            tag=tag,
            buildargs=arguments,
            network_mode="host",
            rm=True,
        )
    except docker.errors.BuildError as error:
        return "".join(str(line) for line in error.build_log)
    return None


def _prometheus(tar: ImageTar) -> None:
    _add_python(tar)
    # Where the official image keeps what it stores.
    tar.add_directory("/prometheus")


def _nats(tar: ImageTar) -> None:
    tar.add_shell()
    tar.add(find_nats_server(), "/usr/local/bin/nats-server")


def _patroni(tar: ImageTar) -> None:
    _add_python(tar)
    _add_postgres(tar)
    tar.add(Path(binaries.program("etcd")), "/usr/local/bin/etcd")
    (packages,) = PATRONI.root.glob("lib/python*/site-packages")
    tar.add_tree(packages, "/opt/patroni")
    starts = '#!/bin/sh\nexec python -m patroni "$@"\n'
    tar.add_text("/usr/local/bin/patroni", starts, mode=0o755)


def _postgres(tar: ImageTar) -> None:
    tar.add_shell()
    _add_postgres(tar)
    tar.add_text("/entrypoint", _POSTGRES_STARTS, mode=0o755)


def _add_postgres(tar: ImageTar) -> None:
    home = _postgres_home()
    programs = [home / "bin" / name for name in POSTGRES_PROGRAMS]
    libraries = sorted((home / "lib").glob("*.so"))
    tar.add_libraries_of([*programs, *(each for each in libraries if "jit" not in each.name)])
    for each in (*programs, *libraries):
        tar.add(each)
    tar.add_tree(Path("/usr/share/postgresql") / home.name, without=["man", "doc"])
    tar.add_tree(Path("/usr/share/zoneinfo"), without=["right", "posix"])
    # The official image finds a name for any user; initdb wants one.
    tar.add_text("/etc/passwd", f"postgres:x:{USER}:{USER}::/tmp:/bin/sh\n")
    tar.add_directory("/var/lib/postgresql", mode=0o1777)
    tar.add_directory("/var/run/postgresql", mode=0o1777)


def _postgres_home() -> Path:
    """Where Debian's is. Skips the test where there is none."""
    if not PROGRAMS:
        pytest.skip("needs a Postgres built with TLS: Debian's package postgresql")
    return PROGRAMS[-1].parents[1]


def _python(tar: ImageTar) -> None:
    _add_python(tar)
    tar.add_text("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")


def _add_python(tar: ImageTar) -> None:
    """The interpreter at its own path with the standard library, as `python` as well."""
    tar.add_shell()
    interpreter = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]  # noqa: SLF001
    library = Path(sysconfig.get_path("stdlib"))
    dynamic = sorted((library / "lib-dynload").glob("*.so"))
    tar.add(interpreter)
    for name in ("python", "python3"):
        tar.add_link(f"/usr/local/bin/{name}", str(interpreter))
    unused = ["site-packages", "dist-packages", "test", "tkinter", "idlelib", "lib2to3"]
    unused.append(Path(sysconfig.get_config_var("LIBPL")).name)  # to build against it
    tar.add_tree(library, without=unused)
    common = Path("/usr/lib") / sysconfig.get_config_var("MULTIARCH")
    found = [each for name in COMMON_LIBRARIES for each in common.glob(f"{name}.so.*")]
    for each in found:
        tar.add(each)
    tar.add_libraries_of([interpreter, *dynamic, *found])
    tar.add(CERTIFICATES)
