"""Whether there is a cluster, and whether its API answers."""

import json
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from services.cli.doctor.check import Probe, Seen, error, not_applicable, ok, warn
from services.cli.doctor.host_facts import HostFacts

QUICKER_SECONDS: Final = 0.5  # than a driver: a name server has to answer too
SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_ENTRY: Final = re.compile(r"\s*(?:-\s+)?[\"']?([\w-]+)[\"']?:\s*[\"']?([^\s\"'#]*)")


def cluster(facts: HostFacts) -> Seen:
    place, address = _address(facts)
    if place is None:
        return not_applicable("no kubeconfig, and not inside a cluster")
    if address is None:
        return warn(
            f"{place} names no cluster's address", "`kubectl config view` shows what it says"
        )
    return _asked(place, address, max(1.0, facts.program_seconds - QUICKER_SECONDS))


def _address(facts: HostFacts) -> tuple[str | None, str | None]:
    """Where the address is written, and the address."""
    environment = facts.environment
    named = environment.get("KUBECONFIG", "")
    places = [each for each in named.split(":") if each]
    if not places and (home := environment.get("HOME")):
        places = [str(Path(home) / ".kube" / "config")]
    for place in places:
        if Path(place).exists():
            return place, server_of(_text(Path(place)))
    if named:
        return named, None
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if host and facts.path(SERVICE_ACCOUNT).exists():
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
        given = json.loads(kubeconfig)
    except ValueError:
        given = _read_lines(kubeconfig)
    if not isinstance(given, dict):
        return None
    contexts = _fields(given.get("contexts"), "context", "cluster")
    servers = _fields(given.get("clusters"), "cluster", "server")
    chosen = contexts.get(str(given.get("current-context")), "")
    return servers.get(chosen) or next((each for each in servers.values() if each), None)


def _fields(entries: Any, inner: str, field: str) -> dict[str, str]:
    """Of entries such as `{name: a, cluster: {server: b}}` the names with that field."""
    found = {}
    for entry in entries if isinstance(entries, list) else ():
        body = entry.get(inner) if isinstance(entry, dict) else None
        if isinstance(body, dict) and isinstance(body.get(field), str):
            found[str(entry.get("name"))] = body[field]
    return found


def _read_lines(text: str) -> dict[str, Any]:
    """The sections of a kubeconfig in YAML, as far as names, clusters and servers go."""
    given: dict[str, Any] = {}
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
            given[section] = value or entries
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
    return given


def _asked(place: str, address: str, timeout_seconds: float) -> Seen:
    if not address.startswith(("https://", "http://")):
        return warn(f"{place} names {address!r}, which is no URL", "`kubectl config view`")
    # Nothing secret is sent; whether the answer comes from the right cluster kubectl checks.
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(  # noqa: S310  # the scheme was looked at
            f"{address.rstrip('/')}/version", timeout=timeout_seconds, context=unchecked
        ) as answer:
            told = re.search(
                r'"gitVersion":\s*"([^"]+)"', answer.read(65_536).decode("utf-8", "replace")
            )
        return ok(
            f"{place}: {address} answers, Kubernetes {told[1] if told else 'of unknown version'}"
        )
    except urllib.error.HTTPError as refusal:
        return ok(f"{place}: {address} answers (HTTP {refusal.code} without a login)")
    except (OSError, ValueError) as failure:
        return error(
            f"{place}: {address} does not answer: {failure}",
            "`kubectl cluster-info`; a VPN or a tunnel may be down, or the context another one: "
            "`kubectl config use-context NAME`",
        )


PROBES: Final = (Probe(name="kubernetes", why="tasks of mode ome run in a cluster", look=cluster),)
