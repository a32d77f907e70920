"""What a directory for docker-compose is made of: files of `compose/`, credentials, a .env.

A file that exists is kept, whatever it holds, so that nothing is rotated by making it again.
"""

import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from schemas.base import node_speaker
from schemas.gateway.tokens import Role
from services.cli.local_platform.compose_texts import (
    ENV,
    HA_ENV,
    HBA,
    NATS_ALSO,
    NATS_CLUSTER,
    NODE_ENV,
    PATRONI,
    PLATFORM_ENV,
)
from shared.errors import StewardError
from shared.local_platform.bus_users import BusUsers
from shared.local_platform.embedded.nats_server import nats_configuration
from shared.local_platform.platform import POSTGRES_SERVICES
from shared.local_platform.secrets_key import join_keys, make_key
from shared.local_platform.tokens import create_token
from shared.paths import (
    DEFAULT_METRICS_PORT,
    DOCKER_SOCKET,
    give_to_owner_above,
    make_directory,
    write_atomically,
)
from shared.postgres.roles import logins_sql, role_of
from shared.tls.contexts import files_in

if TYPE_CHECKING:
    from shared.tls.authority import Authority

TEMPLATES: Final = files("gpusteward") / "compose"
COMPOSE_FILE: Final = "compose.yaml"
IMAGE_USER: Final = 10001  # of compose/Containerfile
NODE_VARIABLE: Final = "STEWARD_NODE_ID"
CLUSTER_VARIABLE: Final = "STEWARD_CLUSTER_ID"
HA_FILES: Final = ("ha.yaml", "ha/Containerfile", "ha/Caddyfile", "ha/first-start.sh")
# By which names the containers reach each server, beside those of this host.
CERTIFIED: Final[Mapping[str, Sequence[str]]] = {
    "nats": ("nats", "nats-2", "nats-3"),
    "postgres": ("postgres", "postgres-2"),
    "gateway": ("gateway", "gateway-2"),
    "agent": ("agent",),
}
CERTIFIED_HA: Final[Mapping[str, Sequence[str]]] = {
    "etcd": ("etcd-1", "etcd-2", "etcd-3"),
    "balancer": ("balancer",),
}
# Servers that are clients of each other.
ALSO_CLIENTS: Final = frozenset({"nats", "postgres", "etcd"})
TLS_MOUNT: Final = Path("/etc/gpusteward/tls")
NATS_SERVERS: Final = ("nats", "nats-2", "nats-3")
CLUSTER: Final = "cluster"


class NotOurs(StewardError):
    """The directory holds something else."""


@dataclass
class ComposeDirectory:
    """`made` and `kept` are the files that a call has written, and found; `differs` those of the
    latter that are not what this version would write.
    """

    root: Path
    made: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    differs: list[Path] = field(default_factory=list)

    @property
    def users(self) -> BusUsers:
        return BusUsers(self.root / "nats" / "users")

    @property
    def environment_path(self) -> Path:
        return self.root / ".env"

    @property
    def environment(self) -> dict[str, str]:
        """Read the variables of the .env. Raises OSError without one."""
        lines = self.environment_path.read_text().splitlines()
        pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
        return {name: value for name, _, value in pairs}

    def make_platform(
        self, node_id: str, *, is_highly_available: bool = False, tls_names: Sequence[str] = ()
    ) -> None:
        """Write all files that compose.yaml names, and ha.yaml. Raises NotOurs or OSError."""
        self._make_root()
        more = PLATFORM_ENV.format(cluster_id=CLUSTER, tls_names=",".join(tls_names))
        if is_highly_available:
            more += HA_ENV
        self._add(".env", lambda: self._environment(node_id, "gpusteward") + more)
        node_id = self.environment.get(NODE_VARIABLE, node_id)
        cluster_id = self.environment.get(CLUSTER_VARIABLE, CLUSTER)
        for name in (COMPOSE_FILE, "prometheus.yml"):
            self._add_template(name, name)
        self._add_template("prometheus/alerts.yml", "alerts.yml")
        self._directory("prometheus")
        self._directory("nats")
        self._add_certificates(tls_names, is_highly_available=is_highly_available)
        configuration = nats_configuration(Path("/var/lib/nats"), files_in(TLS_MOUNT)) + NATS_ALSO
        self._add("nats/nats.conf", lambda: configuration)
        self._directory("nats/users")
        self.users.set_authority(self.authority.certificate_path.read_text())
        self._add_users(node_id, cluster_id)
        self._add_logins()
        self._add("secrets.key", lambda: join_keys([make_key()]))
        self._add_token("admin_token", Role.ADMIN)
        self._add_token("prometheus_token", Role.VIEWER)
        if is_highly_available:
            self._add_highly_available(configuration)

    def make_node(
        self, node_id: str, nats_url: str, metrics_address: str | None = None
    ) -> "ComposeDirectory":
        """A directory to be copied to that node, which joins with it. Prometheus reads its metrics
        where they have an address.
        """
        if not self.authority.certificate_path.exists():
            raise NotOurs(f"{self.root} has no certificates: call `gpusteward compose init` again")
        self._add_users(node_id)
        self._directory("nodes")
        node = ComposeDirectory(self.root / "nodes" / node_id)
        node._make_root()
        # No two nodes may find each other's containers, even where both use one engine.
        text = node._environment(node_id, f"gpusteward-{node_id.lower()}")
        more = NODE_ENV.format(nats_url=nats_url, metrics_address=metrics_address or "127.0.0.1")
        node._add(".env", lambda: text + more)
        node._add_template("node.yaml", COMPOSE_FILE)
        credentials = self.users.path_of(node_speaker(node_id))
        node._add(f"{node_speaker(node_id)}.json", credentials.read_text)
        self._add_node_certificate(node, node_id, metrics_address)
        if metrics_address is not None:
            self._directory("prometheus")
            host = f"[{metrics_address}]" if ":" in metrics_address else metrics_address
            group = {"targets": [f"{host}:{DEFAULT_METRICS_PORT}"], "labels": {"node": node_id}}
            self._add(f"prometheus/{node_id}.json", lambda: json.dumps([group]))
        return node

    @property
    def authority(self) -> "Authority":
        from shared.tls.authority import Authority  # `gpusteward chart` needs no `cryptography`

        return Authority(self.root / "tls")

    def _add_certificates(self, names: Sequence[str], *, is_highly_available: bool) -> None:
        """Make the authority and its certificates; those near their end, or without a name of this
        host, are made anew.
        """
        from shared.tls.authority import own_hosts

        environment = self.environment
        further_names = environment.get("STEWARD_TLS_NAMES", "").split(",")
        hosts = own_hosts(*names, *further_names, environment.get("STEWARD_HOST", ""))
        self._note(self.authority.certificate_path, is_new=self.authority.create())
        self._directory("tls/trust")
        self._add("tls/trust/ca.pem", self.authority.certificate_path.read_text)
        certified = {**CERTIFIED, **(CERTIFIED_HA if is_highly_available else {})}
        for name, own_names in certified.items():
            is_new = self.authority.issue(
                name, [*own_names, *hosts], also_client=name in ALSO_CLIENTS
            )
            self._note(self.authority.files_of(name).certificate, is_new=is_new)

    def _add_node_certificate(
        self, node: "ComposeDirectory", node_id: str, metrics_address: str | None
    ) -> None:
        """Make what its agent's metrics are shown with; the key goes nowhere else."""
        address = [metrics_address] if metrics_address else []
        hosts = [node_id.lower(), "localhost", "127.0.0.1", "::1", *address]
        directory = node.root / "tls"
        is_new = self.authority.issue_into(directory, node_id, hosts)
        (node.made if is_new else node.kept).append(files_in(directory).certificate)

    def _note(self, path: Path, *, is_new: bool) -> None:
        (self.made if is_new else self.kept).append(path)

    def _add_highly_available(self, nats: str) -> None:
        """Write what ha.yaml names; `nats` is what the configurations of all servers share."""
        self._directory("ha")
        for name in HA_FILES:
            self._add_template(name, name)
        (self.root / "ha/first-start.sh").chmod(0o700)
        self._add("nats/route-password", lambda: secrets.token_urlsafe(24))
        password = (self.root / "nats/route-password").read_text()
        routes = ", ".join(f'"nats://route:{password}@{name}:6222"' for name in NATS_SERVERS)
        cluster = NATS_CLUSTER.format(password=password, routes=routes)
        for number, name in enumerate(NATS_SERVERS, 1):
            text = nats.replace("server_name: gpusteward", f"server_name: {name}") + cluster
            self._add(f"nats/nats-{number}.conf", partial(str, text))
        superuser = (self.root / "postgres/password").read_text()
        self._add(
            "postgres/patroni.yml",
            lambda: PATRONI.format(
                superuser=superuser,
                replication=secrets.token_urlsafe(24),
                certificate=files_in(TLS_MOUNT).certificate,
                key=files_in(TLS_MOUNT).key,
                authority=TLS_MOUNT / "ca.pem",
            ),
        )

    def _make_root(self) -> None:
        make_directory(self.root, 0o700)
        if self.environment_path.exists():
            return
        if any(self.root.iterdir()):
            raise NotOurs(f"expected {self.root} to be new, empty, or made by this command before")
        self.root.chmod(0o700)
        if self.root.stat().st_uid == 0:
            os.chown(self.root, IMAGE_USER, IMAGE_USER)

    def _directory(self, name: str) -> None:
        make_directory(self.root / name, 0o700)
        give_to_owner_above(self.root / name)

    def _add(self, name: str, content: Callable[[], str]) -> None:
        path = self.root / name
        if path.exists():
            self.kept.append(path)
            return
        write_atomically(path, content().encode())
        give_to_owner_above(path)
        self.made.append(path)

    def _add_template(self, template: str, name: str) -> None:
        content = (TEMPLATES / template).read_text()
        self._add(name, lambda: content)
        if (self.root / name).read_text() != content:
            self.differs.append(self.root / name)

    def _add_users(self, *node_ids: str) -> None:
        self._directory("nats/users")
        files_before = set(self.users.directory.glob("*.json"))
        self.users.create([node_speaker(node_id) for node_id in node_ids])
        self.kept += sorted(files_before)
        self.made += sorted(set(self.users.directory.glob("*.json")) - files_before)

    def _add_logins(self) -> None:
        """Write the passwords of the services and the superuser, and the SQL that makes their
        roles.

        Those of the services have the form of libpq's password file.
        """
        self._directory("postgres")
        self._directory("postgres/init")
        self._add("postgres/password", lambda: secrets.token_urlsafe(24))
        self._directory("postgres/access")
        self._add("postgres/access/pg_hba.conf", lambda: HBA)
        for name in sorted(POSTGRES_SERVICES):
            line = f"*:5432:gpusteward:{role_of(name)}:{secrets.token_urlsafe(24)}\n"
            self._add(f"postgres/{name}.pgpass", partial(str, line))
        self._add("postgres/init/roles.sql", lambda: logins_sql(self._passwords()))

    def _passwords(self) -> Mapping[str, str]:
        files = {name: self.root / "postgres" / f"{name}.pgpass" for name in POSTGRES_SERVICES}
        return {name: files[name].read_text().strip().rpartition(":")[2] for name in sorted(files)}

    def _add_token(self, name: str, role: Role) -> None:
        tokens = self.root / "tokens.json"
        self._add(name, lambda: create_token(tokens, role, "default"))

    def _environment(self, node_id: str, project: str) -> str:
        owner, socket = self.root.stat(), DOCKER_SOCKET
        return ENV.format(
            project=project,
            uid=owner.st_uid,
            gid=owner.st_gid,
            installation_id=uuid4(),
            node_id=node_id,
            docker_socket=socket,
            docker_gid=socket.stat().st_gid if socket.exists() else 0,
        )
