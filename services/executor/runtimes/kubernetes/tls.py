"""How an engine's pod on another node is asked over TLS: a key and a certificate of its own.

Both are made for one attempt and lie in its Secret, mounted as files. The executor trusts that
certificate alone, so whoever else answers at the engine's address is refused.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from schemas.executor.attempts import StartExperiment
from services.executor.domain.traffic import check_cluster_traffic
from services.executor.engines.image import TLS_CERTIFICATE, TLS_DIRECTORY, TLS_KEY
from services.executor.runtimes.kubernetes.plan import EngineTls, Plan, service_host, workload_name
from services.executor.settings import ExecutorSettings
from shared.benchmarks.tools.present import choose_tool
from shared.paths import write_atomically

TLS_VOLUME: Final = "tls"
PROBE_SECONDS: Final = 5
# Nobody else has the key, and it is trusted during the attempt alone: this may be generous.
MARGIN: Final = timedelta(days=1)


def make_engine_tls(command: StartExperiment, namespace: str, path: Path) -> EngineTls:
    """Make both, and write the certificate to `path`, for those who are to trust it."""
    from shared.tls.authority import make_own_pair  # here, as other executors need none

    name = workload_name(command)
    # The engine itself, as it warms up, asks on loopback.
    hosts = [service_host(command, namespace), "localhost", "127.0.0.1"]
    life = timedelta(seconds=command.timeout_seconds) + MARGIN
    key, certificate = make_own_pair(name, hosts, life)
    write_atomically(path, certificate)
    return EngineTls(key.decode(), certificate.decode())


def tls_data(tls: EngineTls | None) -> dict[str, str]:
    """Return what the attempt's Secret holds for it."""
    return {} if tls is None else {TLS_KEY: tls.key, TLS_CERTIFICATE: tls.certificate}


def tls_volumes(plan: Plan, secret_name: str) -> list[dict[str, Any]]:
    if plan.tls is None:
        return []
    items = [{"key": name, "path": name} for name in (TLS_KEY, TLS_CERTIFICATE)]
    return [{"name": TLS_VOLUME, "secret": {"secretName": secret_name, "items": items}}]


def tls_mounts(plan: Plan) -> list[dict[str, Any]]:
    if plan.tls is None:
        return []
    return [{"name": TLS_VOLUME, "mountPath": TLS_DIRECTORY, "readOnly": True}]


def readiness_probe(plan: Plan) -> dict[str, Any]:
    """Return kubelet's probe, on the engine's own node: it does not look at certificates."""
    get: dict[str, Any] = {"path": plan.command.readiness_path, "port": plan.image.port}
    if plan.tls is not None:
        get["scheme"] = "HTTPS"
    return {
        "httpGet": get,
        "periodSeconds": PROBE_SECONDS,
        "timeoutSeconds": PROBE_SECONDS,
        "failureThreshold": 3,
    }


def check_traffic(command: StartExperiment, settings: ExecutorSettings) -> None:
    """Raises RefusedError as `check_cluster_traffic`, for the tool that runs here."""
    tool = choose_tool(command.benchmark)
    check_cluster_traffic(command, settings.engine_traffic, settings.cluster_access, tool)
