"""One engine in a cluster: awaited, watched, ended for certain."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from msgspec.structs import replace

from schemas.cluster.kubernetes import EnginePod
from schemas.executor.attempts import Failure, FailureKind, Runtime
from services.executor.domain.verdict import AttemptFailed, engine_exit, failure
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.kubernetes.compile_cache import PodCaches
from services.executor.runtimes.kubernetes.effective import differences
from services.executor.runtimes.kubernetes.ending import ObjectsEnding
from services.executor.runtimes.kubernetes.kinds import Object, Service
from services.executor.runtimes.kubernetes.logs import PodLogFollower, tail_of
from services.executor.runtimes.kubernetes.plan import Plan, service_host
from services.executor.runtimes.kubernetes.sight import Sight, image_of, sight_of
from services.executor.runtimes.kubernetes.watched import EngineObjects
from services.executor.runtimes.readiness import LOG_LINES_READ, PROBE_TIMEOUT_SECONDS, is_ready
from services.executor.runtimes.runtime import SIGNALLED, Launch
from shared.ids import node_token
from shared.kubernetes.errors import KubernetesError
from shared.kubernetes.kinds import SERVICES
from shared.kubernetes.objects.pods import PodDetails
from shared.kubernetes.ome import ENGINE_CONTAINER
from shared.labels import RESERVATION_LABEL
from shared.tls.contexts import trusting
from shared.waiting import cancel_and_wait

PROBE_AGAIN_SECONDS: Final = 0.5
LAST_LINES_SECONDS: Final = 3.0
_HOST_PATH_HINT: Final = (
    "the executor keeps what engines compile in a directory of the node, which the security level "
    "`baseline` of a namespace and policies like it refuse: set "
    "GPUSTEWARD_EXECUTOR_CLUSTER_COMPILE_CACHE to a persistentVolumeClaim, or to nothing"
)


@dataclass(slots=True, kw_only=True, eq=False)
class EngineDeployment:
    """A started engine. `stop` has to be called, whatever happened; it may be called again."""

    cluster: Cluster
    caches: PodCaches
    launch: Launch
    plan: Plan
    name: str
    labels: Mapping[str, str]
    intended: Object
    _objects: EngineObjects = field(init=False)
    _first_uid: str | None = None
    _image: str = ""
    _was_ready: bool = False
    _is_released: bool = False
    _follower: PodLogFollower | None = None
    _following: "asyncio.Task[None] | None" = None
    _last: Sight = field(default_factory=lambda: Sight(message="nothing is known of it yet"))

    def __post_init__(self) -> None:
        self._objects = EngineObjects(
            client=self.cluster.client,
            kind=self.plan.kind,
            namespace=self.plan.namespace,
            name=self.name,
            labels=self.labels,
        )

    async def until_ready(self, timeout_seconds: float) -> str:
        """Wait as `RunningEngine.until_ready`.

        Reports what the cluster says that holds the pod, as it changes; that is the failure when
        the time is over.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_SECONDS)
        path = self.plan.command.readiness_path
        self._objects.follow()
        connector = aiohttp.TCPConnector(ssl=trusting(self.launch.certificate))
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, trust_env=False
        ) as session:
            while True:
                sight = await self._sight()
                self.launch.report(sight.message)
                if sight.is_final:
                    raise AttemptFailed(await self._failure(sight, "before it was ready"))
                url = await self._url(sight) if sight.is_ready else ""
                if url and await is_ready(session, f"{url}{path}"):
                    self._was_ready = True
                    return url
                left_seconds = deadline - loop.time()
                if left_seconds <= 0:
                    raise AttemptFailed(await self._late(sight, url, timeout_seconds))
                # What leads to it (a Service, a gateway) follows its readiness, unreported.
                pause = PROBE_AGAIN_SECONDS if sight.is_ready else left_seconds
                await self._objects.change(min(pause, left_seconds))

    async def until_ended(self) -> Failure:
        """Wait as `RunningEngine.until_ended`; an API of the cluster that does not answer is not
        its end.
        """
        self._objects.follow()
        while not (sight := await self._sight()).is_final:
            await self._objects.change()
        return await self._failure(sight, self.launch.ends_when)

    @property
    def message(self) -> str:
        """The cluster's last word on it."""
        return self._last.message

    @property
    def node_name(self) -> str:
        """The node that its pod is on, or is to be on."""
        bound_to = self._last.pod.spec.node_name if self._last.pod is not None else ""
        return bound_to or " or ".join(sorted(self.plan.node_names))

    async def stop(self, grace_seconds: float) -> None:
        await ObjectsEnding(
            cluster=self.cluster,
            kind=self.plan.kind,
            labels=self.labels,
            grace_seconds=grace_seconds,
        ).run()
        await self.close()

    async def close(self) -> None:
        """Look no longer: nothing of it is left."""
        await self._release_cache()
        await self._objects.close()
        await self._last_lines()
        if self._following is not None:
            await cancel_and_wait(self._following)

    async def _release_cache(self) -> None:
        if self.plan.cache is not None and not self._is_released:
            self._is_released = True
            await self.caches.release(self.plan.cache, self._image, is_good=self._was_ready)

    async def _sight(self) -> Sight:
        objects = self._objects
        if objects.error is not None:
            return replace(
                self._last,
                message=f"the cluster's API does not answer: {objects.error}",
                is_final=False,
                is_ready=False,
            )
        if not objects.is_known:
            return self._last
        sight = sight_of(
            objects.workload,
            objects.pods,
            admission=objects.admission(),
            first_uid=self._first_uid,
        )
        self._last = sight = self._proven(sight)
        if sight.pod is not None:
            if sight.pod.spec.node_name and self._first_uid is None:
                await self.launch.bound(self._engine_pod(sight.pod))
                self._first_uid = sight.pod.metadata.uid
            if self._first_uid is not None and image_of(sight.pod) not in {"", self._image}:
                self._image = image_of(sight.pod)
                await self.launch.image_known(self._image)
            self._follow(sight.pod)
        return sight

    def _proven(self, sight: Sight) -> Sight:
        """Failed, if the pod is not what was intended."""
        pod = sight.pod
        if pod is None or (sight.is_final and sight.ended is None):
            return sight
        deviations = list(differences(pod, self.intended, self.plan.node_names))
        if pod.metadata.labels.get(RESERVATION_LABEL) != self.labels[RESERVATION_LABEL]:
            deviations.append("labels: those that say whose it is were left out")
        if not deviations:
            return sight
        message = f"pod {pod.metadata.name} is not as it was asked for: {'; '.join(deviations)}"
        return Sight(
            message=message,
            kind=FailureKind.PARAMETERS_NOT_APPLIED,
            is_final=True,
            pod=pod,
        )

    async def _url(self, sight: Sight) -> str:
        """Return the engine's base URL; empty while the cluster does not say."""
        workload, pod = self._objects.workload, sight.pod
        if workload is None or pod is None:
            return ""
        access, port = self.cluster.settings.cluster_access, self.plan.image.port
        status = workload.status
        scheme = "http" if self.plan.tls is None else "https"
        if access == "pod" and pod.status.pod_ip:
            return f"{scheme}://{_host(pod.status.pod_ip)}:{port}"
        if self.plan.kind is Runtime.OME:
            address = status.address.url if status.address is not None else ""
            return (status.url or address).rstrip("/")
        if access == "node_port" and pod.status.host_ip:
            node_port = await self._node_port()
            return f"{scheme}://{_host(pod.status.host_ip)}:{node_port}" if node_port else ""
        host = service_host(self.launch.command, self.plan.namespace)
        return f"{scheme}://{host}:{port}" if access == "service" else ""

    async def _node_port(self) -> int | None:
        try:
            service = await self.cluster.read(
                SERVICES, self.name, Service, namespace=self.plan.namespace
            )
        except KubernetesError:
            return None
        ports = service.spec.ports if service is not None else ()
        return ports[0].node_port if ports else None

    def _engine_pod(self, pod: PodDetails) -> EnginePod:
        return EnginePod(
            node_id=node_token(pod.spec.node_name),
            namespace=self.plan.namespace,
            pod=pod.metadata.name,
            container=ENGINE_CONTAINER,
            gpus=self.plan.placement.gpus,
            rank=self.plan.rank,
        )

    def _follow(self, pod: PodDetails) -> None:
        """Follow the pod's log, once it has a container that may write one."""
        if self._follower is not None or not pod.status.container_statuses:
            return
        self._follower = PodLogFollower(cluster=self.cluster, pod=pod, log=self.launch.log)
        self._following = asyncio.create_task(self._follower.follow(), name="follow_pod_log")

    async def _failure(self, sight: Sight, when: str) -> Failure:
        engine = self.plan.command.engine
        if (ended := sight.ended) is None or sight.pod is None:
            text = self.launch.log.tail(LOG_LINES_READ)
            message = f"{engine}: {sight.message}"
            return failure(sight.kind, message, log_text=text, hint=self._hint(sight))
        await self._last_lines()
        text = ""
        with suppress(KubernetesError):
            text = await tail_of(self.cluster, sight.pod, previous=sight.has_restarted)
        by_signal = SIGNALLED < ended.exit_code < SIGNALLED + 65
        return engine_exit(
            engine,
            SIGNALLED - ended.exit_code if by_signal else ended.exit_code,
            when,
            "\n".join(filter(None, (text or self.launch.log.tail(LOG_LINES_READ), ended.message))),
            oom_killed=ended.reason == "OOMKilled",
        )

    async def _late(self, sight: Sight, url: str, timeout_seconds: float) -> Failure:
        where = f"; it is asked at {url}" if sight.is_ready and url else ""
        return failure(
            sight.kind,
            f"expected {self.plan.command.engine} to answer {self.plan.command.readiness_path} "
            f"within {timeout_seconds:g} s: {sight.message}{where}",
            log_text=self.launch.log.tail(LOG_LINES_READ),
            hint=self._hint(sight),
        )

    def _hint(self, sight: Sight) -> str:
        """Return why there may be no pod; empty where nothing of ours exists."""
        cache = self.plan.cache
        is_suspect = sight.pod is None and cache is not None and cache.volume.claim is None
        return _HOST_PATH_HINT if is_suspect else ""

    async def _last_lines(self) -> None:
        """Wait a moment for what it wrote in the end."""
        if self._follower is None or self._following is None:
            return
        self._follower.is_over.set()
        await asyncio.wait({self._following}, timeout=LAST_LINES_SECONDS)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
