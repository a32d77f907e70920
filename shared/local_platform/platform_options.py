"""How a platform on one machine is to be."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.host_header import is_loopback
from shared.local_platform.own_certificates import HTTP_SERVER, NATS_SERVER
from shared.nats_addresses import are_on_loopback
from shared.paths import DEFAULT_HTTP_PORT

SERVICES: Final = ("scheduler", "telemetry", "results", "orchestrator", "executor", "gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """A Kubernetes cluster to be watched and used: the id that is its node's, and how it is found,
    None being kubectl's way.
    """

    cluster_id: str
    kubeconfig: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformOptions:
    """The options of `gpusteward up` and `gpusteward agent`.

    `nats_url` and `postgres_dsn` name servers that exist, the former also all of a cluster with
    commas between them; None runs an embedded one.
    `nats_credentials_path` is a user's file for all, or a directory with one for each.
    `simulate` has telemetry make up a fleet, `fleet` being the file that describes it. With a
    `tokens_file` the API requires tokens. With a `cluster` its adapter and executor run as well.
    With a `standby` a second process of each platform service runs, at the same address. If
    `compact`, one process runs all services but the executor and the second scheduler.

    The API shows `tls_certificate`, whose key is in `tls_key`. What other machines reach without
    one is given a certificate by an authority of our own, for this machine's names and `tls_names`,
    unless it `is_insecure`: then it is plain text.
    """

    data_dir: Path
    nats_url: str | None = None
    nats_credentials_path: Path | None = None
    nats_host: str = "127.0.0.1"
    nats_port: int | None = None
    postgres_dsn: str | None = None
    http_host: str = "127.0.0.1"
    http_port: int = DEFAULT_HTTP_PORT
    tokens_file: Path | None = None
    node_id: str | None = None
    fleet: Path | None = None
    simulate: bool = False
    services: Sequence[str] = SERVICES
    cluster: ClusterOptions | None = None
    standby: bool = False
    compact: bool = False
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_names: Sequence[str] = ()
    is_insecure: bool = False

    @property
    def is_api_encrypted(self) -> bool:
        """True if the API is spoken to by https."""
        has_own = not is_loopback(self.http_host) and not self.is_insecure
        return self.tls_certificate is not None or has_own

    @property
    def servers_to_certify(self) -> list[str]:
        """The servers of ours that need a certificate of our own."""
        if self.is_insecure:
            return []
        has_nats = self.nats_url is None and not is_loopback(self.nats_host)
        is_alone = self.tls_certificate is None and not is_loopback(self.http_host)
        has_api = is_alone and "gateway" in self.services
        return [*([NATS_SERVER] if has_nats else []), *([HTTP_SERVER] if has_api else [])]

    @property
    def is_bus_local(self) -> bool:
        """True if only agents of this machine reach the bus."""
        if self.nats_url is None:
            return is_loopback(self.nats_host)
        return are_on_loopback(self.nats_url)
