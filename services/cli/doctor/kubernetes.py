"""Whether there is a cluster, whether its API answers, and what it has of what engines need."""

import json
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from services.cli.doctor.check import CheckResult, Probe, error, missing, not_applicable, ok, warn
from services.cli.doctor.host_facts import HostFacts
from shared.kubernetes.access import SERVICE_ACCOUNT
from shared.kubernetes.ome import OME_VERSION
from shared.kubernetes.requirements import OLDEST, is_too_old

if TYPE_CHECKING:
    from services.cli.doctor.cluster_report import ClusterReport

QUICKER_SECONDS: Final = 0.5  # than a driver: a name server has to answer too
_OLDEST: Final = ".".join(map(str, OLDEST))
_LOGIN: Final = "`kubectl auth whoami`; the login of the context may have ended"
_ROLES: Final = (
    "bind the roles of the chart to this login: templates/connect/permissions.yaml of"
    " `gpusteward chart`"
)
_ENTRY: Final = re.compile(r"\s*(?:-\s+)?[\"']?([\w-]+)[\"']?:\s*[\"']?([^\s\"'#]*)")


def cluster(facts: HostFacts) -> CheckResult:
    place, address = _address(facts)
    if place is None:
        return not_applicable("no kubeconfig, and not inside a cluster")
    if address is None:
        return warn(
            f"{place} names no cluster's address", "`kubectl config view` shows what it says"
        )
    return _probe_address(place, address, max(1.0, facts.program_seconds - QUICKER_SECONDS))


def _address(facts: HostFacts) -> tuple[str | None, str | None]:
    """Return where the address is written, and the address."""
    environment = facts.environment
    path_list = environment.get("GPUSTEWARD_KUBECONFIG") or environment.get("KUBECONFIG", "")
    places = [path for path in path_list.split(":") if path]
    if not places and (home := environment.get("HOME")):
        places = [str(Path(home) / ".kube" / "config")]
    for place in places:
        if Path(place).exists():
            return place, server_of(_text(Path(place)))
    if path_list:
        return path_list, None
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if host and facts.path(str(SERVICE_ACCOUNT / "token")).exists():
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        return "this cluster", f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return None, None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[: 1 << 20]
    except OSError:
        return ""


def server_of(kubeconfig: str) -> str | None:
    """The server of the current context, or of the only cluster; None if nothing names one.

    Reads what kubectl writes, in YAML or JSON: the names and addresses, and nothing secret.
    """
    try:
        config = json.loads(kubeconfig)
    except ValueError:
        config = _read_lines(kubeconfig)
    if not isinstance(config, dict):
        return None
    contexts = _fields(config.get("contexts"), "context", "cluster")
    servers = _fields(config.get("clusters"), "cluster", "server")
    cluster_name = contexts.get(str(config.get("current-context")), "")
    return servers.get(cluster_name) or next(
        (server for server in servers.values() if server), None
    )


def _fields(entries: Any, inner: str, field: str) -> dict[str, str]:
    """Return that field of each entry by name; an entry is `{name: a, cluster: {server: b}}`."""
    fields = {}
    for entry in entries if isinstance(entries, list) else ():
        body = entry.get(inner) if isinstance(entry, dict) else None
        if isinstance(body, dict) and isinstance(body.get(field), str):
            fields[str(entry.get("name"))] = body[field]
    return fields


def _read_lines(text: str) -> dict[str, Any]:
    """The sections of a kubeconfig in YAML, as far as names, clusters and servers go."""
    config: dict[str, Any] = {}
    entries: list[dict[str, Any]] = []
    body: dict[str, str] = {}
    section, margin = "", 0
    for line in text.splitlines():
        if (entry := _ENTRY.match(line)) is None:
            continue
        key, value, column = entry[1], entry[2], entry.start(1)
        dash = line.find("- ", 0, column)
        if column == 0:
            section, entries = key, []
            config[section] = value or entries
        elif dash >= 0 and (not entries or dash == margin):
            margin, body = dash, {}
            entries.append({section.removesuffix("s"): body})
        if not entries:
            continue
        # Further in are lists of their own, with names of their own.
        if key == "name" and column == margin + len("- "):
            entries[-1]["name"] = value
        elif value and column:
            body.setdefault(key, value)
    return config


def _probe_address(place: str, address: str, timeout_seconds: float) -> CheckResult:
    if not address.startswith(("https://", "http://")):
        return warn(f"{place} names {address!r}, which is no URL", "`kubectl config view`")
    # Nothing secret is sent; whether the answer comes from the right cluster kubectl checks.
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(  # noqa: S310  # the scheme was checked
            f"{address.rstrip('/')}/version", timeout=timeout_seconds, context=unchecked
        ) as answer:
            match = re.search(
                r'"gitVersion":\s*"([^"]+)"', answer.read(65_536).decode("utf-8", "replace")
            )
        version = match[1] if match else "of unknown version"
        if is_too_old(version):
            return error(
                f"{place}: {address} is Kubernetes {version}, expected {_OLDEST} or later",
                "upgrade the cluster, or choose another context",
            )
        return ok(f"{place}: {address} answers, Kubernetes {version}")
    except urllib.error.HTTPError as refusal:
        return ok(f"{place}: {address} answers (HTTP {refusal.code} without a login)")
    except (OSError, ValueError) as failure:
        return error(
            f"{place}: {address} does not answer: {failure}",
            "`kubectl cluster-info`; a VPN or a tunnel may be down, or the context another one: "
            "`kubectl config use-context NAME`",
        )


def gpus(facts: HostFacts) -> CheckResult:
    if (report := _report(facts)) is None:
        return not_applicable("no cluster")
    if report.error is not None:
        return warn(report.error, _LOGIN)
    if report.counted is None and report.devices is None:
        return warn("this login may list neither nodes nor ResourceSlices", _ROLES)
    gpu_texts = [f"{count} {name}" for name, count in (report.counted or {}).items()]
    gpu_texts += [
        f"{count} devices of {driver}" for driver, count in (report.devices or {}).items()
    ]
    if gpu_texts:
        return ok(f"{report.node_count} nodes: {', '.join(gpu_texts)}{_sharing_text(report)}")
    return missing(
        f"no GPUs on {report.node_count} nodes: no device plugin counts any, no driver has "
        "published ResourceSlices",
        "install the vendor's operator: NVIDIA's brings a device plugin, or from Kubernetes 1.34 "
        "on a driver for Dynamic Resource Allocation; `kubectl describe node NAME` tells what a "
        "node offers",
    )


def _sharing_text(report: "ClusterReport") -> str:
    if not report.divided:
        return ""
    name, note = next(iter(report.divided.items()))
    rest_text = f" (and {len(report.divided) - 1} more)" if len(report.divided) > 1 else ""
    return f"; not every unit is a GPU: {name}{rest_text}: {note}"


def ome(facts: HostFacts) -> CheckResult:
    if (report := _report(facts)) is None or report.error is not None:
        return not_applicable("no cluster that answers this login")
    if report.ome_versions is None:
        return warn("this login may not ask which kinds the cluster has", _ROLES)
    version = OME_VERSION.rpartition("/")[2]
    if not report.ome_versions:
        return missing(
            "the cluster has no kinds of ome.io",
            "install OME, or use mode kubernetes, which needs none",
        )
    if version not in report.ome_versions:
        return error(
            f"the cluster has ome.io {', '.join(report.ome_versions)}, expected {version}",
            f"install a version of OME that serves {OME_VERSION}",
        )
    if report.unknown_fields:
        unknown = "; ".join(
            f"{kind}: {', '.join(fields)}" for kind, fields in report.unknown_fields.items()
        )
        return warn(
            f"ome.io {version} of this cluster does not know {unknown}",
            "what it does not know it drops: install OME 0.1.5 or later",
        )
    versions = ", ".join(report.ome_versions)
    if report.unknown_fields is None:
        return ok(f"ome.io {versions}; this login may not read which fields its kinds have")
    return ok(f"ome.io {versions}, with every field that is set")


def permissions(facts: HostFacts) -> CheckResult:
    if (report := _report(facts)) is None or report.error is not None:
        return not_applicable("no cluster that answers this login")
    if report.missing_rights:
        return missing(
            f"this login lacks rights on {len(report.missing_rights)} kinds of objects",
            f"{_ROLES}; it may not {', '.join(report.missing_rights)}",
        )
    may = f"this login may watch the cluster and run engines in {report.namespace}"
    if report.unreadable:
        return warn(f"{may}, but not learn or do: {', '.join(report.unreadable)}", _ROLES)
    return ok(may)


def _report(facts: HostFacts) -> "ClusterReport | None":
    """Return the cluster's report; None without a cluster that could be asked."""
    place, address = _address(facts)
    return None if place is None or address is None else facts.cluster.get()


PROBES: Final = (
    Probe(
        name="kubernetes", why="tasks of mode ome and kubernetes run in a cluster", inspect=cluster
    ),
    Probe(name="kubernetes-gpus", why="nothing else tells which GPUs a cluster has", inspect=gpus),
    Probe(name="ome", why="tasks of mode ome are InferenceServices", inspect=ome),
    Probe(
        name="kubernetes-permissions",
        why="`up --cluster` watches and runs engines with this login",
        inspect=permissions,
    ),
)
