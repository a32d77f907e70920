"""What a directory for docker-compose is made of: files of `compose/`, credentials, a .env.

A file that exists is kept, whatever it holds, so that nothing is rotated by making it again.
"""

import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final
from uuid import uuid4

from schemas.base import node_speaker
from schemas.gateway.tokens import Role
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

TEMPLATES: Final = files("gpusteward") / "compose"
COMPOSE_FILE: Final = "compose.yaml"
IMAGE_USER: Final = 10001  # of compose/Containerfile
NODE_VARIABLE: Final = "STEWARD_NODE_ID"
CLUSTER_VARIABLE: Final = "STEWARD_CLUSTER_ID"
# Only for the server of `compose/compose.yaml`.
_NATS_ALSO: Final = """\
# For the health check; nobody else reaches it.
http: "127.0.0.1:8222"
"""
_ENV: Final = """\
# Read by docker-compose and `docker compose` in this directory.
COMPOSE_PROJECT_NAME={project}
STEWARD_IMAGE=gpusteward
# Who the containers run as: the owner of these files.
STEWARD_UID={uid}
STEWARD_GID={gid}
STEWARD_INSTALLATION_ID={installation_id}
STEWARD_NODE_ID={node_id}
# Of profile gpu: Docker's socket, the group that may use it, where models lie.
STEWARD_DOCKER_SOCKET={docker_socket}
STEWARD_DOCKER_GID={docker_gid}
STEWARD_MODELS=/srv/models
"""
_PLATFORM_ENV: Final = """\
STEWARD_NATS_IMAGE=nats:2.12-alpine
STEWARD_POSTGRES_IMAGE=postgres:18
STEWARD_PROMETHEUS_IMAGE=prom/prometheus:v3.7.3
# Where this machine listens. Others reach neither until their address here is not a loopback one.
STEWARD_API_ADDRESS=127.0.0.1
STEWARD_API_PORT=8470
STEWARD_NATS_ADDRESS=127.0.0.1
STEWARD_NATS_PORT=4222
# Of profile cluster: its name here, and what leads to it, with a token or a certificate in it.
STEWARD_CLUSTER_ID={cluster_id}
STEWARD_KUBECONFIG=/etc/gpusteward/kubeconfig
"""
_NODE_ENV: Final = """\
STEWARD_NATS_URL={nats_url}
# Where its agent's metrics are, on port 9400, for whoever reaches that address.
STEWARD_METRICS_ADDRESS={metrics_address}
"""
_HA_ENV: Final = """\
# Both files together are what runs; behind them, with another colon, a compose.override.yaml.
COMPOSE_FILE=compose.yaml:ha.yaml
STEWARD_PATRONI_IMAGE=gpusteward-patroni
STEWARD_BALANCER_IMAGE=caddy:2.10
# Of the second and the third NATS server, beside STEWARD_NATS_PORT.
STEWARD_NATS_PORT_2=4223
STEWARD_NATS_PORT_3=4224
# The name in the balancer's certificate, by which browsers reach it, and where it listens.
STEWARD_HOST=localhost
STEWARD_HTTPS_ADDRESS=127.0.0.1
STEWARD_HTTPS_PORT=8443
"""
_NATS_CLUSTER: Final = """\
cluster {{
  name: gpusteward
  listen: "0.0.0.0:6222"
  # Clients have all addresses; those of the containers are of no use to others.
  no_advertise: true
  authorization {{ user: route, password: "{password}", timeout: 5 }}
  routes: [{routes}]
}}
"""
_PATRONI: Final = """\
# Which of two servers is the primary is decided in etcd. A commit is acknowledged once both have
# it, while both are there.
scope: gpusteward
restapi: {{listen: "0.0.0.0:8008"}}
etcd3: {{hosts: "etcd-1:2379,etcd-2:2379,etcd-3:2379"}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 5
    retry_timeout: 5
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      use_slots: true
      # A client that was killed must not keep its locks until its statement ends.
      parameters: {{client_connection_check_interval: 500ms, jit: "off", max_connections: 200}}
  initdb: [{{encoding: UTF8}}, data-checksums]
  post_bootstrap: /etc/patroni/first-start.sh
postgresql:
  listen: "0.0.0.0:5432"
  data_dir: /var/lib/postgresql/18/patroni
  pgpass: /tmp/pgpass
  parameters: {{unix_socket_directories: /var/run/postgresql}}
  pg_hba:
    - local all all trust
    - host replication replicator all scram-sha-256
    - host all all all scram-sha-256
  authentication:
    superuser: {{username: postgres, password: "{superuser}"}}
    replication: {{username: replicator, password: "{replication}"}}
"""
HA_FILES: Final = ("ha.yaml", "ha/Containerfile", "ha/Caddyfile", "ha/first-start.sh")
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

    def make_platform(self, node_id: str, *, is_highly_available: bool = False) -> None:
        """Write all files that compose.yaml names, and ha.yaml. Raises NotOurs or OSError."""
        self._make_root()
        more = _PLATFORM_ENV.format(cluster_id=CLUSTER)
        if is_highly_available:
            more += _HA_ENV
        self._add(".env", lambda: self._environment(node_id, "gpusteward") + more)
        node_id = self.environment.get(NODE_VARIABLE, node_id)
        cluster_id = self.environment.get(CLUSTER_VARIABLE, CLUSTER)
        for name in (COMPOSE_FILE, "prometheus.yml"):
            self._add_template(name, name)
        self._add_template("prometheus/alerts.yml", "alerts.yml")
        self._directory("prometheus")
        self._directory("nats")
        configuration = nats_configuration(Path("/var/lib/nats")) + _NATS_ALSO
        self._add("nats/nats.conf", lambda: configuration)
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
        self._add_users(node_id)
        self._directory("nodes")
        node = ComposeDirectory(self.root / "nodes" / node_id)
        node._make_root()
        # No two nodes may find each other's containers, even where both use one engine.
        text = node._environment(node_id, f"gpusteward-{node_id.lower()}")
        more = _NODE_ENV.format(nats_url=nats_url, metrics_address=metrics_address or "127.0.0.1")
        node._add(".env", lambda: text + more)
        node._add_template("node.yaml", COMPOSE_FILE)
        credentials = self.users.path_of(node_speaker(node_id))
        node._add(f"{node_speaker(node_id)}.json", credentials.read_text)
        if metrics_address is not None:
            self._directory("prometheus")
            host = f"[{metrics_address}]" if ":" in metrics_address else metrics_address
            group = {"targets": [f"{host}:{DEFAULT_METRICS_PORT}"], "labels": {"node": node_id}}
            self._add(f"prometheus/{node_id}.json", lambda: json.dumps([group]))
        return node

    def _add_highly_available(self, nats: str) -> None:
        """Write what ha.yaml names; `nats` is what the configurations of all servers share."""
        self._directory("ha")
        for name in HA_FILES:
            self._add_template(name, name)
        (self.root / "ha/first-start.sh").chmod(0o700)
        self._add("nats/route-password", lambda: secrets.token_urlsafe(24))
        password = (self.root / "nats/route-password").read_text()
        routes = ", ".join(f'"nats://route:{password}@{name}:6222"' for name in NATS_SERVERS)
        cluster = _NATS_CLUSTER.format(password=password, routes=routes)
        for number, name in enumerate(NATS_SERVERS, 1):
            text = nats.replace("server_name: gpusteward", f"server_name: {name}") + cluster
            self._add(f"nats/nats-{number}.conf", partial(str, text))
        superuser = (self.root / "postgres/password").read_text()
        self._add(
            "postgres/patroni.yml",
            lambda: _PATRONI.format(superuser=superuser, replication=secrets.token_urlsafe(24)),
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
        return _ENV.format(
            project=project,
            uid=owner.st_uid,
            gid=owner.st_gid,
            installation_id=uuid4(),
            node_id=node_id,
            docker_socket=socket,
            docker_gid=socket.stat().st_gid if socket.exists() else 0,
        )
