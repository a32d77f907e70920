"""The platform on one machine: which processes it is made of and what each gets."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from schemas.base import node_speaker
from shared.errors import StewardError
from shared.host_header import LOOPBACK_OF_WILDCARD
from shared.ids import host_node_id
from shared.lifecycle import (
    ENVIRONMENTS_VARIABLE,
    DataDirectoryLock,
    forget_ready,
    give_back_memory,
    notify_ready,
)
from shared.local_platform.bus_users import LOCAL_ADMIN, BusUsers
from shared.local_platform.embedded import EmbeddedNats, EmbeddedPostgres
from shared.local_platform.fleet_quantum import quantum_environment
from shared.local_platform.own_certificates import HTTP_SERVER, NATS_SERVER, OwnCertificates
from shared.local_platform.platform_options import SERVICES, ClusterOptions, PlatformOptions
from shared.local_platform.settings_check import settings_errors
from shared.local_platform.supervisor.service import Child, ChildSpec
from shared.local_platform.supervisor.service_launcher import ServiceLauncher
from shared.local_platform.supervisor.supervisor import ChildState, Supervisor, marks_of
from shared.local_platform.tokens import TOKENS_FILE_VARIABLE
from shared.paths import DATA_DIR_VARIABLE, DataDirectory, Endpoint, python_path
from shared.settings import INSECURE_VARIABLE, SettingsError
from shared.waiting import cancel_and_wait

__all__ = ["SERVICES", "ClusterOptions", "Platform", "PlatformOptions", "run_platform"]

AGENT_SERVICES: Final = ("telemetry", "executor")
POSTGRES_SERVICES: Final = frozenset({"scheduler", "results", "orchestrator", "gateway"})
NATS_VARIABLE: Final = "GPUSTEWARD_NATS_URL"
POSTGRES_VARIABLE: Final = "GPUSTEWARD_POSTGRES_DSN"
ADMIT_NODES_VARIABLE: Final = "GPUSTEWARD_SCHEDULER_ADMIT_NODES"
# Longer than any service's own limit for what it does while stopping; the executor ends engines.
STOP_TIMEOUT_SECONDS: Final[Mapping[str, float]] = {"executor": 30.0}

# Half of what these import nobody shares; they do it beside each other instead.
IMPORTING_THEMSELVES: Final = frozenset({"executor", "gateway"})

# Those of one process where the platform is compact. The executor, which engines outlive, and the
# second scheduler, which renews leases while these start anew, stay apart.
COMPACT_SERVICES: Final = frozenset(SERVICES) - {"executor"}

CLUSTER_SERVICES: Final[Mapping[str, str]] = {"cluster": "cluster", "cluster-executor": "executor"}

Stage = list[Child | ChildSpec]


class RestoreUnfinished(StewardError):
    """A restore into the data directory was cut off."""

    def __init__(self, directory: DataDirectory) -> None:
        super().__init__(
            f"a restore into {directory.root} was cut off: repeat `gpusteward backup restore`, "
            f"which begins anew"
        )


class Platform:
    """The children of one machine's platform and the addresses that they get."""

    def __init__(self, options: PlatformOptions) -> None:
        unknown = set(options.services) - set(SERVICES)
        if unknown:
            raise ValueError(f"expected services among {', '.join(SERVICES)}, found {unknown}")
        self.options = options
        self.directory = DataDirectory(options.data_dir.resolve())
        marks = marks_of(self.directory)
        hosts = [options.nats_host, options.http_host, *options.tls_names]
        names = options.servers_to_certify
        self.certificates = OwnCertificates(self.directory.tls, names, hosts)
        self.nats: EmbeddedNats | None = None
        if options.nats_url is None:
            self.nats = EmbeddedNats(
                self.directory.nats,
                log_path=self.directory.log_path("nats"),
                host=options.nats_host,
                port=options.nats_port,
                users=[node_speaker(node_id) for node_id in self._node_ids],
                environment=marks,
                tls=self.certificates.files_of(NATS_SERVER) if NATS_SERVER in names else None,
                authority=self.certificates.authority_path if NATS_SERVER in names else None,
            )
        self.postgres: EmbeddedPostgres | None = None
        if options.postgres_dsn is None and POSTGRES_SERVICES.intersection(options.services):
            self.postgres = EmbeddedPostgres(
                self.directory.postgres,
                log_path=self.directory.log_path("postgres"),
                environment=marks,
                schemas=sorted(POSTGRES_SERVICES),
            )

    @property
    def _node_id(self) -> str:
        return self.options.node_id or host_node_id()

    @property
    def _node_ids(self) -> list[str]:
        cluster = self.options.cluster
        return [self._node_id, *([cluster.cluster_id] if cluster is not None else [])]

    @property
    def stages(self) -> list[Stage]:
        """The servers, then the services, which need not wait for each other."""
        servers: Stage = [server for server in (self.nats, self.postgres) if server is not None]
        names = [name for name in SERVICES if name in self.options.services]
        together = COMPACT_SERVICES.intersection(names) if self.options.compact else frozenset()
        services: Stage = [self._service(name) for name in names if name not in together]
        if together:
            services.append(self._services([name for name in names if name in together]))
        services += [
            replace(self._service(name), name=f"{name}-2")
            for name in self._doubled
            if name in self.options.services
        ]
        if self.options.cluster is not None:
            services += self._cluster_services(self.options.cluster)
        return [stage for stage in (servers, services) if stage]

    @property
    def _doubled(self) -> Sequence[str]:
        """Services that run twice: leases have to be renewed while a scheduler hangs or starts."""
        if not self.options.standby:
            return ("scheduler",)
        return [name for name in SERVICES if name in POSTGRES_SERVICES]

    @property
    def api_url(self) -> str | None:
        """The gateway's address; None where no gateway is run."""
        if "gateway" not in self.options.services:
            return None
        host = self.options.http_host
        host = LOOPBACK_OF_WILDCARD.get(host, host)
        scheme = "https" if self.options.is_api_encrypted else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.options.http_port}"

    def endpoint(self) -> Endpoint:
        """Return the endpoint file for clients on this machine. The servers must be running."""
        credentials = self._credentials_path(LOCAL_ADMIN)
        return Endpoint(
            pid=os.getpid(),
            api_url=self.api_url,
            nats_url=self._nats_url(),
            nats_credentials_path=str(credentials) if credentials else None,
            postgres_dsn=self._postgres_dsn(),
        )

    def environment(self) -> dict[str, str]:
        """Return the variables that every service gets, beside those of our own environment."""
        url = self._nats_url()
        return {**self._lasting_environment(), **({NATS_VARIABLE: url} if url is not None else {})}

    def launcher(self) -> ServiceLauncher | None:
        """Return the process that services are forked from; None where there is no such thing."""
        if sys.platform != "linux":
            return None
        of_cluster = CLUSTER_SERVICES.values() if self.options.cluster is not None else ()
        names = {*self.options.services, *of_cluster} - IMPORTING_THEMSELVES
        return ServiceLauncher(
            [f"services.{name}.app" for name in sorted(names)],
            lambda: {**self._lasting_environment(), **marks_of(self.directory)},
            log_path=self.directory.log_path("launcher"),
        )

    def _lasting_environment(self) -> dict[str, str]:
        """The part of `environment` that is known before any server runs."""
        variables = {
            DATA_DIR_VARIABLE: str(self.directory.root),
            NATS_VARIABLE: self.options.nats_url,
            "GPUSTEWARD_NODE_ID": self._node_id,
            "GPUSTEWARD_INSTALLATION_ID": str(self.directory.installation_id()),
            INSECURE_VARIABLE: "true" if self.options.is_insecure else None,
        }
        return {
            **os.environ,
            "PYTHONPATH": python_path(),
            "PYTHONUNBUFFERED": "1",
            **{name: value for name, value in variables.items() if value is not None},
        }

    async def keep_certificates(self) -> None:
        """Renew our own certificates for ever; the gateway sees by itself that its files change."""
        if self.certificates.names:
            await self.certificates.keep(self._load_certificate)

    def _load_certificate(self, name: str) -> None:
        if name == NATS_SERVER and self.nats is not None:
            self.nats.reload()

    def settings_errors(self) -> list[str]:
        """Return what is wrong in the settings of the services, a sentence each."""
        addresses = {
            NATS_VARIABLE: self.options.nats_url,
            POSTGRES_VARIABLE: self.options.postgres_dsn,
        }
        # Of the addresses in our own environment no service gets anything.
        environ = {name: value for name, value in os.environ.items() if name not in addresses}
        if self.options.is_insecure:
            environ[INSECURE_VARIABLE] = "true"
        options_set = {name: value for name, value in addresses.items() if value is not None}
        environ_by_service = {
            name: {**self._external_login(name), **self._own_environment(name)}
            for name in self.options.services
        }
        return settings_errors({**environ, **options_set}, environ_by_service)

    def _service(self, name: str) -> ChildSpec:
        return ChildSpec(
            name=name,
            argv=[sys.executable, "-m", f"services.{name}"],
            env=lambda: {**self.environment(), **self._environment_of(name)},
            stop_timeout_seconds=STOP_TIMEOUT_SECONDS.get(name, 10.0),
        )

    def _services(self, names: Sequence[str]) -> ChildSpec:
        """Return one process of all of them."""

        def environment() -> dict[str, str]:
            by_name = msgspec.json.encode({name: self._environment_of(name) for name in names})
            return {**self.environment(), ENVIRONMENTS_VARIABLE: by_name.decode()}

        argv = [sys.executable, "-m", "shared.services_process", *names]
        return ChildSpec(name="services", argv=argv, env=environment)

    def _environment_of(self, name: str) -> dict[str, str]:
        """Return the variables that this service alone gets. The servers must be running."""
        return {
            **self._database_environment(name),
            **self._login_of(name),
            **self._own_environment(name),
            **self._joining_environment(name),
        }

    def _cluster_services(self, cluster: ClusterOptions) -> Stage:
        """They speak for the cluster, and its executor has a journal of its own."""
        credentials = self._credentials_path(node_speaker(cluster.cluster_id))
        directory = self.directory.root / "clusters" / cluster.cluster_id
        flags = {
            DATA_DIR_VARIABLE: str(directory),
            "GPUSTEWARD_NODE_ID": cluster.cluster_id,
            "GPUSTEWARD_EXECUTOR_CLUSTER": "true",
            "GPUSTEWARD_KUBECONFIG": cluster.kubeconfig,
            "GPUSTEWARD_KUBE_CONTEXT": cluster.context,
            "GPUSTEWARD_NATS_CREDENTIALS": str(credentials) if credentials else None,
        }
        flags_set = {name: value for name, value in flags.items() if value is not None}
        services: list[ChildSpec] = [
            ChildSpec(
                name=name,
                argv=[sys.executable, "-m", f"services.{service}"],
                env=lambda: {**self.environment(), **flags_set},
                stop_timeout_seconds=STOP_TIMEOUT_SECONDS.get(service, 10.0),
            )
            for name, service in CLUSTER_SERVICES.items()
        ]
        if self.options.standby:
            waits = {"GPUSTEWARD_CLUSTER_STANDBY": "true"}
            environment = lambda: {**self.environment(), **flags_set, **waits}  # noqa: E731
            services.append(replace(services[0], name="cluster-2", env=environment))
        return [*services]

    def _database_environment(self, name: str) -> dict[str, str]:
        """A service's own login; with a server of the operator's, the one that was given."""
        if name not in POSTGRES_SERVICES:
            return {}
        dsn = self.options.postgres_dsn
        if self.postgres is not None:
            dsn = self.postgres.login_of(name)
        return {POSTGRES_VARIABLE: dsn} if dsn is not None else {}

    def _external_login(self, name: str) -> dict[str, str]:
        return self._login_of(name) if self.nats is None else {}

    def _login_of(self, name: str) -> dict[str, str]:
        user = node_speaker(self._node_id) if name in AGENT_SERVICES else name
        path = self._credentials_path(user)
        return {} if path is None else {"GPUSTEWARD_NATS_CREDENTIALS": str(path)}

    def _own_environment(self, name: str) -> dict[str, str]:
        if name == "scheduler":
            return {**self._admit(), **quantum_environment(self.options.fleet, os.environ)}
        if name == "gateway":
            tokens = _absolute(self.options.tokens_file)
            return {
                "GPUSTEWARD_GATEWAY_HOST": self.options.http_host,
                "GPUSTEWARD_GATEWAY_PORT": str(self.options.http_port),
                **({"GPUSTEWARD_GATEWAY_SHARES_PORT": "true"} if self.options.standby else {}),
                **({TOKENS_FILE_VARIABLE: str(tokens)} if tokens is not None else {}),
                **self._tls_environment(),
            }
        if name == "telemetry" and (self.options.simulate or self.options.fleet is not None):
            simulated = {"GPUSTEWARD_TELEMETRY_SOURCE": "simulated"}
            if self.options.fleet is not None:
                simulated["GPUSTEWARD_TELEMETRY_FLEET"] = str(self.options.fleet.absolute())
            return simulated
        return {}

    def _tls_environment(self) -> dict[str, str]:
        certificate, key = _absolute(self.options.tls_certificate), _absolute(self.options.tls_key)
        paths = {"CERT": certificate, "KEY": key}
        if HTTP_SERVER in self.certificates.names:
            files = self.certificates.files_of(HTTP_SERVER)
            authority = self.certificates.authority_path
            paths = {"CERT": files.certificate, "KEY": files.key, "CA": authority}
        return {f"GPUSTEWARD_GATEWAY_TLS_{name}": str(path) for name, path in paths.items() if path}

    def _joining_environment(self, name: str) -> dict[str, str]:
        """Let the gateway give new nodes their credentials. Known once the server has a port."""
        if name != "gateway" or self.nats is None:
            return {}
        host = self.options.nats_host
        authority = f"[{host}]:{self.nats.port}" if ":" in host else f"{host}:{self.nats.port}"
        scheme = self.nats.url.partition("://")[0]
        return {
            "GPUSTEWARD_GATEWAY_NATS_HOME": str(self.directory.nats),
            "GPUSTEWARD_GATEWAY_NODE_NATS_URL": f"{scheme}://{authority}",
        }

    def _admit(self) -> dict[str, str]:
        if self.options.is_bus_local:
            return {}
        node_ids = ",".join(self._node_ids)
        return {ADMIT_NODES_VARIABLE: os.environ.get(ADMIT_NODES_VARIABLE, node_ids)}

    def _nats_url(self) -> str | None:
        return self.nats.url if self.nats is not None else self.options.nats_url

    def _credentials_path(self, user: str) -> Path | None:
        if self.nats is not None:
            return self.nats.users.path_of(user)
        path = _absolute(self.options.nats_credentials_path)
        return BusUsers(path).path_of(user) if path is not None and path.is_dir() else path

    def _postgres_dsn(self) -> str | None:
        return self.postgres.dsn if self.postgres is not None else self.options.postgres_dsn


async def run_platform(
    options: PlatformOptions,
    *,
    on_change: Callable[[ChildState], None] | None = None,
    on_started: Callable[[Endpoint], None] | None = None,
    on_disk: Callable[[str], None] | None = None,
) -> None:
    """Run the platform until SIGTERM, SIGINT or a failed first start.

    Raises SettingsError before anything is started, DataDirectoryBusy if one runs on this directory
    already, NotReady or PostgresUnavailable if a part of it does not start, RestoreUnfinished.
    """
    platform = Platform(options)
    if errors := await asyncio.to_thread(platform.settings_errors):
        raise SettingsError("\n".join(errors))
    directory = platform.directory
    directory.prepare()
    forget_ready()
    with DataDirectoryLock(directory) as lock:
        if directory.restoring_path.exists():
            raise RestoreUnfinished(directory)

        await asyncio.to_thread(platform.certificates.renew)

        def announce() -> None:
            endpoint = platform.endpoint()
            directory.write_endpoint(endpoint)
            if endpoint.api_url is not None:
                lock.announce(endpoint.api_url)
            notify_ready()
            give_back_memory()
            if on_started is not None:
                on_started(endpoint)

        supervisor = Supervisor(
            platform.stages,
            directory,
            launcher=platform.launcher(),
            on_change=on_change,
            on_started=announce,
            on_disk=on_disk,
        )
        keeper = asyncio.create_task(platform.keep_certificates())
        try:
            await supervisor.run()
        finally:
            await cancel_and_wait(keeper)
            directory.remove_endpoint()


def _absolute(path: Path | None) -> Path | None:
    return path.absolute() if path is not None else None
