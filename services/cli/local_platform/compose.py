"""What a directory for docker-compose is made of: files of `compose/`, credentials, a .env.

A file that exists is kept, whatever it holds, so that nothing is rotated by making it again.
"""

import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

from schemas.base import node_speaker
from schemas.gateway.tokens import Role
from shared.errors import StewardError
from shared.local_platform.bus_users import BusUsers
from shared.local_platform.embedded.nats_server import nats_configuration
from shared.local_platform.platform import POSTGRES_SERVICES
from shared.local_platform.tokens import create_token
from shared.paths import SOURCE_ROOT, give_to_owner_above, make_directory, write_atomically
from shared.postgres.roles import logins_sql, role_of

TEMPLATES: Final = SOURCE_ROOT / "compose"
COMPOSE_FILE: Final = "compose.yaml"
IMAGE_USER: Final = 10001  # of compose/Containerfile
DOCKER_SOCKET: Final = Path("/var/run/docker.sock")
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
CLUSTER: Final = "cluster"
METRICS_PORT: Final = 9400


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
        """What the .env says. Raises OSError without one."""
        lines = self.environment_path.read_text().splitlines()
        pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
        return {name: value for name, _, value in pairs}

    def make_platform(self, node_id: str) -> None:
        """All that compose.yaml names. Raises NotOurs or OSError."""
        self._make_root()
        more = _PLATFORM_ENV.format(cluster_id=CLUSTER)
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
        self._add_token("admin_token", Role.ADMIN)
        self._add_token("prometheus_token", Role.VIEWER)

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
            group = {"targets": [f"{host}:{METRICS_PORT}"], "labels": {"node": node_id}}
            self._add(f"prometheus/{node_id}.json", lambda: json.dumps([group]))
        return node

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
        before = set(self.users.directory.glob("*.json"))
        self.users.create([node_speaker(each) for each in node_ids])
        self.kept += sorted(before)
        self.made += sorted(set(self.users.directory.glob("*.json")) - before)

    def _add_logins(self) -> None:
        """Each service's password in the form of libpq's password file, all of them in the SQL that
        makes the roles; the superuser's.
        """
        self._directory("postgres")
        self._directory("postgres/init")
        self._add("postgres/password", lambda: secrets.token_urlsafe(24))
        for name in sorted(POSTGRES_SERVICES):
            line = f"postgres:5432:gpusteward:{role_of(name)}:{secrets.token_urlsafe(24)}\n"
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
