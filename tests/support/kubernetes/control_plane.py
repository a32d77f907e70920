"""A real control plane on loopback ports: etcd, kube-apiserver, kube-scheduler and the controllers
of kube-controller-manager that make pods and remove what has lost its owner; kwok pretends to be
every node and to run every pod that is bound.

Addresses: pods and Services have loopback ones (`ControlPlane.networks`), so that a server of the
test's own may listen where an engine or its Service would. There are no endpoints of Services:
the apiserver takes no loopback address for one.

What a pod does follows from its first container's image: with `no-such-image` in it its pull
fails, with `crashing` it ends again and again, with `slow` it is ready after three seconds. All
others run at once. What every container logs is `ControlPlane.pod_log`, what `exec` finds in it are
the programs in `ControlPlane.pod_programs`.

Left out, because a host that is short of processors would act on it: nodes that are late with
their heartbeats are not tainted.
"""

import asyncio
import json
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import ClientError

from shared.kubernetes.requirements import Right
from shared.processes.child_process import ChildProcess, NotReady
from tests.support.kubernetes.api import Api, ApiError, Object, path_of, path_to
from tests.support.kubernetes.binaries import program
from tests.support.kubernetes.loopback_networks import LoopbackNetworks
from tests.support.ports import free_ports

START_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02
POD_LOG: Final = "2026-11-22T18:00:00.000000000Z stdout F a line of a pretended pod\n"
MANY_NODES: Final = 400  # to delete them costs more than to start anew
WIPE_SECONDS: Final = 20.0
FINALIZER_SECONDS: Final = 0.3  # then nobody comes who would take them away
USERS: Final = ("admin", "executor", "watcher", "denied")
CONTROLLERS: Final = (
    "deployment-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "replicaset-controller",
    "resourceclaim-controller",
)
CLIENTS: Final = ("kube-scheduler", "kube-controller-manager", "kwok")
BUILT_IN: Final = frozenset({"apps", "autoscaling", "batch", "extensions", "policy"})
KEPT_NAMESPACES: Final = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
STAGES: Final = Path(__file__).with_name("pods.yaml")


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    kubelet: int


class ControlPlane:
    """One of them; it has to be stopped."""

    def __init__(self, directory: Path, *, apiserver_arguments: Sequence[str] = ()) -> None:
        self.directory = directory
        self.apiserver_arguments = tuple(apiserver_arguments)
        self.networks = LoopbackNetworks()
        self._ports = Ports(*free_ports(4))
        self._tokens = {user: secrets.token_urlsafe(16) for user in USERS}
        self._running: dict[str, ChildProcess] = {}

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._ports.apiserver}"

    @property
    def ca_file(self) -> Path:
        """Of the apiserver's certificate, which signs itself, for 127.0.0.1."""
        return self.directory / "certificates/apiserver.crt"

    @property
    def key_file(self) -> Path:
        """Of that certificate: a webhook of a test can be trusted with it."""
        return self.directory / "certificates/apiserver.key"

    @property
    def pod_log(self) -> Path:
        """`2026-11-22T18:00:00.000000000Z stdout F a line`, which every container logs."""
        return self.directory / "pod.log"

    @property
    def pod_programs(self) -> Path:
        """Executables here are found first by `exec` in any container; it runs on this host."""
        return self.directory / "pod-programs"

    def token(self, user: str = "admin") -> str:
        return self._tokens[user]

    def kubeconfig(self, user: str = "admin") -> Path:
        """A file for one of USERS; only `admin` may anything before `allow`."""
        return self.directory / f"{user}.kubeconfig"

    def api(self, user: str = "admin") -> AbstractAsyncContextManager[Api]:
        """Plain calls as one of USERS."""
        return Api.connected(self.url, self.token(user), str(self.ca_file))

    async def start(self) -> None:
        """Until nodes and pods can be made: about 5 s."""
        self._prepare()
        self._spawn(
            "etcd",
            f"--data-dir={self.directory}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{self._ports.etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{self._ports.etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{self._ports.etcd_peer}",
            "--log-level=warn",
        )
        await self.start_apiserver()

    async def stop(self) -> None:
        """For good; its networks are free again."""
        await self._kill_all()
        self.networks.close()

    async def start_apiserver(self) -> None:
        """Until it is ready, on the port that it had. Its clients begin anew: after 8 s without a
        server client-go was seen to pause for 54 s, after 17 s for 85 s.
        """
        certificates = self.directory / "certificates"
        # First: an old kwok could give a pod its address, and the new one give it another.
        for name in CLIENTS:
            if name in self._running:
                await self._kill(name)
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports.etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._ports.apiserver}",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={certificates}",
            f"--token-auth-file={self.directory}/tokens.csv",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            # The key that it has made for its certificate.
            f"--service-account-key-file={self.key_file}",
            f"--service-account-signing-key-file={self.key_file}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={self.networks.services}",
            "--delete-collection-workers=16",
            *self.apiserver_arguments,
        )
        await self._until_ready()
        self._spawn_clients()
        await self._until_kwok_listens()

    async def stop_apiserver(self) -> None:
        """SIGKILL, with which every watch breaks."""
        await self._kill("kube-apiserver")

    async def restart_apiserver(self) -> None:
        """Watches from versions before it get 410 if their kind has changed since; 3 s."""
        await self.stop_apiserver()
        await self.start_apiserver()

    def pause(self, name: str) -> None:
        """SIGSTOP one of the programs: connections stay open and nothing answers."""
        self._running[name].send(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._running[name].send(signal.SIGCONT)

    def pid(self, name: str) -> int:
        return self._running[name].pid

    async def allow(
        self, user: str, rules: Sequence[Object], *, namespace: str | None = None
    ) -> None:
        """Give one of USERS a role; without a namespace in all of them. `wipe` takes it back."""
        scope = "ClusterRole" if namespace is None else "Role"
        name = f"test-{user}-{secrets.token_hex(4)}"
        metadata: Object = {"name": name}
        if namespace is not None:
            metadata["namespace"] = namespace
        authorization = "rbac.authorization.k8s.io"
        async with self.api() as api:
            await api.create(
                {
                    "apiVersion": f"{authorization}/v1",
                    "kind": scope,
                    "metadata": metadata,
                    "rules": list(rules),
                }
            )
            await api.create(
                {
                    "apiVersion": f"{authorization}/v1",
                    "kind": f"{scope}Binding",
                    "metadata": metadata,
                    "roleRef": {"apiGroup": authorization, "kind": scope, "name": name},
                    "subjects": [{"apiGroup": authorization, "kind": "User", "name": user}],
                }
            )

    async def wipe(self) -> None:
        """Everything that a test may have made; the kinds that it has installed may stay."""
        async with self.api() as api:
            if len(await api.metadata("api/v1/nodes")) < MANY_NODES:
                await _wipe(api)
                self.pod_log.write_text(POD_LOG)  # engines add to it
                return
        await self._kill_all()
        shutil.rmtree(self.directory / "etcd")
        await self.start()

    def _prepare(self) -> None:
        self.pod_programs.mkdir(parents=True, exist_ok=True)
        self.pod_log.write_text(POD_LOG)
        groups = {"admin": ',"system:masters"'}
        lines = [
            f"{token},{user},{user}{groups.get(user, '')}" for user, token in self._tokens.items()
        ]
        (self.directory / "tokens.csv").write_text("\n".join(lines) + "\n")
        for user in USERS:
            self.kubeconfig(user).write_text(json.dumps(self._kubeconfig_of(user), indent=1))
        stages = STAGES.read_text()
        for name, value in {
            "LOG": self.pod_log,
            "PROGRAMS": self.pod_programs,
            "DIRECTORY": self.directory,
        }.items():
            stages = stages.replace(f"@{name}@", str(value))
        (self.directory / "kwok.yaml").write_text(stages)

    def _kubeconfig_of(self, user: str) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)},
                }
            ],
        }

    def _spawn_clients(self) -> None:
        kubeconfig = f"--kubeconfig={self.kubeconfig()}"
        own = (
            kubeconfig,
            f"--authentication-kubeconfig={self.kubeconfig()}",
            f"--authorization-kubeconfig={self.kubeconfig()}",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self._spawn("kube-scheduler", *own)
        self._spawn(
            "kube-controller-manager",
            *own,
            f"--controllers={','.join(CONTROLLERS)}",
            "--concurrent-deployment-syncs=2",
        )
        self._spawn_kwok()

    def _spawn_kwok(self) -> None:
        self._spawn(
            "kwok",
            f"--kubeconfig={self.kubeconfig()}",
            f"--config={self.directory}/kwok.yaml",
            "--manage-all-nodes=true",
            f"--cidr={self.networks.pods.replace('.0.0/', '.0.1/')}",
            "--node-ip=127.0.0.1",
            f"--node-port={self._ports.kubelet}",
            f"--server-address=127.0.0.1:{self._ports.kubelet}",
            f"--tls-cert-file={self.ca_file}",
            f"--tls-private-key-file={self.key_file}",
        )

    def _spawn(self, name: str, *arguments: str) -> None:
        self._running[name] = ChildProcess.spawn(
            name,
            [program(name), *arguments],
            # Memory is not what tests are short of; collecting it would take a third of the time.
            env={"PATH": self._path, "HOME": str(self.directory), "GOGC": "400"},
            cwd=self.directory,
            log_path=self._log(name),
        )

    @property
    def _path(self) -> str:
        """Kwok looks for what `exec` asks for in its own."""
        return f"{self.pod_programs}:/usr/bin:/bin"

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    async def _kill_all(self) -> None:
        for name in reversed(tuple(self._running)):
            await self._kill(name)

    async def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        await process.wait()

    async def _until_ready(self) -> None:
        apiserver = self._running["kube-apiserver"]
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while not await self._is_ready():
            for name, process in self._running.items():
                if process.returncode is not None:
                    raise NotReady(name, f"ended with {process.returncode}", self._log(name))
            if asyncio.get_running_loop().time() > deadline:
                raise NotReady(
                    apiserver.name,
                    f"was not ready within {START_SECONDS} s",
                    self._log(apiserver.name),
                )
            await asyncio.sleep(POLL_SECONDS)

    async def _until_kwok_listens(self) -> None:
        """It gives up where one of its first calls fails, after which no pod would start or end."""
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._ports.kubelet)
                writer.transport.abort()
                return
            if asyncio.get_running_loop().time() > deadline:
                raise NotReady(
                    "kwok", f"did not listen within {START_SECONDS} s", self._log("kwok")
                )
            if self._running["kwok"].returncode is not None:
                self._spawn_kwok()
            await asyncio.sleep(POLL_SECONDS)

    async def _is_ready(self) -> bool:
        if not self.ca_file.exists():
            return False
        with suppress(ClientError, ApiError, OSError):
            async with self.api() as api:
                return bool(await api.get("readyz") == "ok")
        return False


# Owners before what they own, which would be made again.
_WIPED: Final = (
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "PersistentVolume"),
    ("v1", "Event"),
    ("v1", "Node"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
)

# Kinds of which Kubernetes has its own in its namespaces; whatever else is there a test has made.
_OF_KUBERNETES: Final = frozenset({"ConfigMap", "Role", "RoleBinding", "Secret", "ServiceAccount"})

_REMADE: Final = (("apps/v1", "ReplicaSet"), ("v1", "Pod"), ("resource.k8s.io/v1", "ResourceClaim"))


def rule_of(right: Right) -> Object:
    """Of RBAC, for `allow`."""
    resource, _, group = right.place.partition(".")
    return {"apiGroups": [group], "resources": [resource], "verbs": list(right.verbs)}


async def _wipe(api: Api) -> None:
    # Webhooks first, which could hold the rest up; then installed kinds, which own others.
    kinds = (*_WIPED[-2:], *await installed_kinds(api), *_WIPED[:-2])
    for api_version, kind in kinds:
        await _wipe_kind(api, api_version, kind)
    # A controller that has not heard of its owner's end makes what was deleted once more.
    while any([await _wipe_kind(api, api_version, kind) for api_version, kind in _REMADE]):
        pass
    for kind in ("ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role"):
        path = path_to("rbac.authorization.k8s.io/v1", kind, "kube-public")
        await api.delete(path, labelSelector="kubernetes.io/bootstrapping!=rbac-defaults")
    config_maps = path_to("v1", "ConfigMap", "kube-public")
    await api.delete(config_maps, labelSelector="features.alauda.io/type")
    for namespace in await api.items("api/v1/namespaces"):
        if (name := namespace["metadata"]["name"]) not in KEPT_NAMESPACES:
            await api.delete(f"api/v1/namespaces/{name}")


async def installed_kinds(api: Api) -> list[tuple[str, str]]:
    """API version and kind of every custom resource, from what is served: definitions are large."""
    groups = (await api.get("apis"))["groups"]
    return [
        (version["groupVersion"], each["kind"])
        for group in groups
        if group["name"] not in BUILT_IN and not group["name"].endswith(".k8s.io")
        for version in group["versions"]
        for each in (await api.get(f"apis/{version['groupVersion']}"))["resources"]
        if "deletecollection" in each["verbs"]
    ]


async def _wipe_kind(api: Api, api_version: str, kind: str) -> bool:
    """Whether there was one."""
    was_there = False
    began = asyncio.get_running_loop().time()
    while found := await _own(api, api_version, kind):
        waited = asyncio.get_running_loop().time() - began
        if waited > WIPE_SECONDS:
            raise AssertionError(f"{len(found)} of {kind} cannot be deleted")
        if waited > FINALIZER_SECONDS:
            for each in found:
                whole = {**each, "apiVersion": api_version, "kind": kind}
                with suppress(ApiError):
                    await api.merge(path_of(whole), {"metadata": {"finalizers": None}})
        for namespace in {each["metadata"].get("namespace") for each in found}:
            await api.delete(path_to(api_version, kind, namespace), gracePeriodSeconds=0)
        if was_there:
            await asyncio.sleep(POLL_SECONDS)
        was_there = True
    return was_there


async def _own(api: Api, api_version: str, kind: str) -> list[Object]:
    """Without those of Kubernetes itself."""
    return [
        each
        for each in await api.metadata(path_to(api_version, kind))
        if not (
            kind in _OF_KUBERNETES and each["metadata"].get("namespace", "").startswith("kube-")
        )
        and not (kind == "Service" and each["metadata"]["name"] == "kubernetes")
    ]


@asynccontextmanager
async def control_plane_in(
    directory: Path, *, apiserver_arguments: Sequence[str] = ()
) -> AsyncIterator[ControlPlane]:
    """One of the test's own, for arguments that the session's does not have."""
    control_plane = ControlPlane(directory, apiserver_arguments=apiserver_arguments)
    try:
        await control_plane.start()
        yield control_plane
    finally:
        await control_plane.stop()
