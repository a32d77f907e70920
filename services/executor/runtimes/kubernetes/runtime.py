"""Engines in a cluster, as an attempt sees them: of OME, or as Deployments of our own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from schemas.cluster.kubernetes import KubernetesSpec
from schemas.errors import ErrorCode
from schemas.executor.attempts import EngineSpec, Runtime, RuntimeOffer, StartExperiment
from services.executor.domain.traffic import ALLOW_PLAINTEXT, TLS
from services.executor.domain.verdict import AttemptFailed
from services.executor.engines.engine import EngineCommand
from services.executor.engines.engine_table import SWITCHED_OFF
from services.executor.engines.image import EngineImage, container_command
from services.executor.runtimes.kubernetes.cluster import Cluster, namespaces_for
from services.executor.runtimes.kubernetes.compile_cache import PodCaches
from services.executor.runtimes.kubernetes.deployment import EngineDeployment
from services.executor.runtimes.kubernetes.ending import ObjectsEnding
from services.executor.runtimes.kubernetes.leader_worker import (
    LEADER_ADDRESS,
    VARIABLE_PREFIX,
    WORKER_INDEX,
    WORKER_INDEX_LABEL,
    require_leader_worker_sets,
)
from services.executor.runtimes.kubernetes.objects import engine_container, objects_of
from services.executor.runtimes.kubernetes.plan import (
    LEADER_PORT,
    Plan,
    finding_labels,
    leader_address,
    own_labels,
    rank_name,
)
from services.executor.runtimes.kubernetes.preflight import Preflight
from services.executor.runtimes.kubernetes.ranks import EngineRanks, RankLog, places_of
from services.executor.runtimes.kubernetes.references import ResolvedNames, resolve
from services.executor.runtimes.kubernetes.secrets import owns_secret, secret_data, secret_object
from services.executor.runtimes.kubernetes.tls import check_traffic, make_engine_tls
from services.executor.runtimes.runtime import Labels, Launch, RuntimeUnavailable, Workload
from services.executor.settings import ExecutorSettings
from shared.accelerator_rules.cuda_versions import image_cuda
from shared.errors import RefusedError
from shared.kubernetes.errors import FORBIDDEN, KubernetesError
from shared.kubernetes.kinds import PODS
from shared.labels import (
    ATTEMPT_LABEL,
    EPOCH_LABEL,
    EXPERIMENT_LABEL,
    RANK_LABEL,
    RESERVATION_LABEL,
    parse_epoch,
    parse_id,
)
from shared.waiting import within

WORKLOADS_SECONDS: Final = 20.0
TEMPLATE: Final = "{{"
_OME_PLAINTEXT: Final = (
    f"OME leads to engines by plain HTTP: use mode 'kubernetes', {ALLOW_PLAINTEXT}"
)
_HOST_PATHS: Final = "its engines file mounts directories of a host, which pods do not get"


class KubernetesRuntime:
    """One of the two kinds. Only what carries this installation, this executor's node id and the
    reservation as labels is ever touched.
    """

    def __init__(
        self,
        kind: Runtime,
        settings: ExecutorSettings,
        cluster: Cluster,
        preflight: Preflight,
        images: Mapping[str, EngineImage],
        caches: PodCaches,
    ) -> None:
        self.kind = kind
        self._settings = settings
        self._images = images
        self._cluster = cluster
        self._preflight = preflight
        self._caches = caches
        self._unmade: set[UUID] = set()

    async def offer(self) -> RuntimeOffer:
        """Offer every engine with an image, unless the cluster lacks something that all of them
        need.
        """
        result = await self._preflight.inspect(self.kind)
        reasons = {name: self._missing(image) for name, image in self._images.items()}
        missing = {name: reason for name, reason in reasons.items() if reason is not None}
        if result.says:
            missing[self.kind.value] = result.says
        able = () if result.is_unable else self._images
        return RuntimeOffer(
            runtime=self.kind,
            engines=tuple(name for name in able if reasons[name] is None),
            missing=missing,
            version=result.version,
            engine_rules={name: image.engine.rules for name, image in self._images.items()},
            serving_runtimes=result.serving_runtimes,
            devices=result.devices,
            image_cuda=self._cuda_of_tags(),
        )

    def _cuda_of_tags(self) -> dict[str, str]:
        """Return the CUDA versions of engines by their usual tags, as the images cannot be read
        here.
        """
        versions = {name: image_cuda(image.tag, (), {}) for name, image in self._images.items()}
        return {name: cuda for name, cuda in versions.items() if cuda is not None}

    def check(self, command: StartExperiment) -> None:
        names = command.engine.kubernetes or KubernetesSpec()
        allowed = namespaces_for(self._settings, command.namespace)
        if names.namespace is not None and names.namespace not in allowed:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                f"tasks of namespace {command.namespace} may name "
                f"{', '.join(allowed) or 'no namespace of this cluster'}, got {names.namespace}: "
                "its operator allows others by GPUSTEWARD_EXECUTOR_CLUSTER_NAMESPACES",
                path="$.model.namespace",
            )
        if command.cluster is None:
            raise RefusedError(
                ErrorCode.BAD_REQUEST, "expected a place in a cluster, got none", path="$.cluster"
            )
        if names.claim is None and command.engine.model.startswith(("/", ".", "~")):
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected a model's name, or a volume claim that holds it, got the path "
                f"{command.engine.model!r}",
                path="$.model.id_or_path",
            )
        image = self._image(command)
        image.reference(command.engine.image_tag)
        if command.cluster.other_nodes:
            self._check_ranks(image)
        check_traffic(command, self._settings)
        made = self._command(image, command, command.engine.model, command.engine.model)
        if self.kind is not Runtime.OME:
            return
        for text in (TEMPLATE, VARIABLE_PREFIX):
            if any(text in argument for argument in made.argv):
                raise RefusedError(
                    ErrorCode.BAD_REQUEST,
                    f"expected parameters without {text!r}, which OME or its pods would fill in",
                    path="$.parameters",
                )

    def _check_ranks(self, image: EngineImage) -> None:
        if image.engine.rank_flags is None:
            message = f"{image.engine.name} serves on one node only: it knows no ranks"
            raise RefusedError(ErrorCode.UNSUPPORTED, message, path="$.base_runtime")

    async def prepare(self, _: EngineSpec) -> str:
        """Do nothing: on clusters kubelet pulls images."""
        return ""

    async def fetch(
        self, command: StartExperiment, on_progress: Callable[[float, str], None]
    ) -> None:
        """Look up what the task names; nodes pull images when they get a pod."""
        on_progress(0.0, "looking up what the task names in the cluster")
        self._unmade.add(command.reservation_id)
        await self._resolve(command)

    async def start(self, launch: Launch) -> EngineDeployment | EngineRanks:
        command = launch.command
        self._unmade.add(command.reservation_id)
        plans = await self._plans(launch)
        finding = {
            **finding_labels(self._settings, self.kind, launch.labels),
            ATTEMPT_LABEL: str(command.attempt_id),
            # What another holder has taken over since is not this one's to end.
            EPOCH_LABEL: str(launch.labels.epoch or 0),
        }
        # Nothing is made that could not be found again.
        await self._cluster.patiently(
            lambda: self._cluster.find_of_kind(self.kind, finding), "a look at what is there"
        )
        self._unmade.discard(command.reservation_id)
        try:
            for made in objects_of(launch, plans, self._settings):
                uid = await self._cluster.apply(made, finding, launch.labels.epoch or 0)
                if secret_data(launch, plans[0]) and owns_secret(made, command):
                    secret = secret_object(launch, plans[0], self._settings, made, uid)
                    await self._cluster.make_secret(secret)
        except AttemptFailed:
            await self._ending(finding).run()
            raise
        ranks = [self._deployment(launch, plan, finding) for plan in plans]
        return ranks[0] if len(ranks) == 1 else EngineRanks(ranks=ranks, labels=finding)

    async def _plans(self, launch: Launch) -> list[Plan]:
        """Return what is to be made for each rank: of most engines there is one."""
        command = launch.command
        image = self._image(command)
        resolved = await self._resolve(command)
        if command.cluster is None:
            raise RuntimeError("a start without a place, which `check` refuses")
        namespace = self._namespace(command)
        places = places_of(command.cluster)
        is_of_ome = self.kind is Runtime.OME and len(places) > 1
        if is_of_ome:
            await require_leader_worker_sets(self._cluster)
        cache, tls = None, None
        if self._speaks_tls:
            tls = make_engine_tls(command, namespace, launch.certificate_path)
        if len(places) == 1:
            cache = await self._caches.take(command, namespace, resolved.reference)
        return [
            Plan(
                kind=self.kind,
                namespace=namespace,
                image=image,
                reference=resolved.reference,
                command=self._command(
                    image,
                    command,
                    resolved.model_path,
                    launch.served_model_name,
                    rank_parameters=_rank_parameters(
                        image,
                        rank if not is_of_ome or rank == 0 else WORKER_INDEX,
                        len(places),
                        LEADER_ADDRESS if is_of_ome else leader_address(command, namespace),
                    ),
                ),
                names=command.engine.kubernetes or KubernetesSpec(),
                placement=place,
                model=resolved.model,
                cache=cache,
                tls=tls,
                rank=rank,
                size=len(places),
                worker_nodes=command.cluster.other_nodes if is_of_ome else (),
            )
            for rank, place in enumerate(places)
        ]

    def _deployment(
        self, launch: Launch, plan: Plan, finding: Mapping[str, str]
    ) -> EngineDeployment:
        labels = dict(finding)
        if plan.size > 1:
            labels[WORKER_INDEX_LABEL if plan.worker_nodes else RANK_LABEL] = str(plan.rank)
        if plan.rank:
            # What it waits for, and which image it runs, is told of rank 0 alone.
            launch = replace(
                launch,
                log=RankLog(launch.log, plan.rank),
                report=_ignore,
                image_known=_ignore_fact,
            )
        return EngineDeployment(
            cluster=self._cluster,
            caches=self._caches,
            launch=launch,
            plan=plan,
            name=rank_name(launch.command, 0 if plan.worker_nodes else plan.rank),
            labels=labels,
            intended=engine_container(launch, plan, self._settings),
        )

    async def workloads(self) -> tuple[Workload, ...]:
        """Return all workloads of this installation and executor, one for each reservation."""
        try:
            async with within(WORKLOADS_SECONDS):
                cluster_objects = await self._cluster.find_of_kind(
                    self.kind, own_labels(self._settings, self.kind)
                )
        except (KubernetesError, TimeoutError) as error:
            raise RuntimeUnavailable(f"the cluster does not say what runs: {error}") from error
        together: dict[UUID, list[tuple[dict[str, str], str]]] = {}
        for found_object in cluster_objects:
            labels = found_object.item.metadata.labels
            reservation_id = parse_id(labels.get(RESERVATION_LABEL))
            if reservation_id is not None:
                pod = found_object.item.metadata.name if found_object.resource is PODS else ""
                together.setdefault(reservation_id, []).append((labels, pod))
        return tuple(
            self._workload(reservation_id, objects) for reservation_id, objects in together.items()
        )

    async def end(self, labels: Labels, *, grace_seconds: float = 0.0) -> None:
        ending = self._ending(finding_labels(self._settings, self.kind, labels), grace_seconds)
        # Where nothing was made in this life, and the cluster lets nothing be looked up.
        if labels.reservation_id not in self._unmade or not await self._is_shut():
            await ending.run()
        self._unmade.discard(labels.reservation_id)

    def _ending(self, labels: dict[str, str], grace_seconds: float = 0.0) -> ObjectsEnding:
        return ObjectsEnding(
            cluster=self._cluster, kind=self.kind, labels=labels, grace_seconds=grace_seconds
        )

    async def _is_shut(self) -> bool:
        try:
            await self._cluster.find_of_kind(self.kind, own_labels(self._settings, self.kind))
        except KubernetesError as error:
            return error.code == FORBIDDEN
        return False

    def _workload(
        self, reservation_id: UUID, objects: list[tuple[dict[str, str], str]]
    ) -> Workload:
        labels = max((labels for labels, _ in objects), key=len)
        pods = tuple(sorted(pod for _, pod in objects if pod))
        return Workload(
            labels=Labels(
                reservation_id=reservation_id,
                installation_id=self._settings.installation_id,
                node_id=self._settings.node_id,
                epoch=parse_epoch(labels.get(EPOCH_LABEL)),
                experiment_id=parse_id(labels.get(EXPERIMENT_LABEL)),
            ),
            container_ids=pods,
            is_running=bool(pods),
        )

    def _missing(self, image: EngineImage) -> str | None:
        if image.engine.simulated and not self._settings.allow_simulated_engine:
            return SWITCHED_OFF
        if self._speaks_tls and self.kind is Runtime.OME:
            return _OME_PLAINTEXT
        if self._speaks_tls and image.engine.tls_flags is None:
            return f"it serves no HTTPS: take another engine, {ALLOW_PLAINTEXT}"
        return _HOST_PATHS if image.mounts else image.missing()

    @property
    def _speaks_tls(self) -> bool:
        return self._settings.engine_traffic == TLS

    def _image(self, command: StartExperiment) -> EngineImage:
        name = command.engine.engine.lower()
        image = self._images.get(name)
        if image is None:
            message = f"expected an engine of {', '.join(self._images)}, got {name!r}"
            raise RefusedError(ErrorCode.UNSUPPORTED, message, path="$.base_runtime")
        if (missing := self._missing(image)) is not None:
            message = f"{name} cannot run in this cluster: {missing}"
            raise RefusedError(ErrorCode.UNSUPPORTED, message, path="$.base_runtime")
        return image

    def _namespace(self, command: StartExperiment) -> str:
        names = command.engine.kubernetes or KubernetesSpec()
        if names.namespace is not None:
            return names.namespace
        allowed = namespaces_for(self._settings, command.namespace)
        default = self._settings.cluster_namespace
        return default if default in allowed or not allowed else allowed[0]

    def _command(
        self,
        image: EngineImage,
        command: StartExperiment,
        model: str,
        served_model_name: str,
        rank_parameters: Mapping[str, Any] | None = None,
    ) -> EngineCommand:
        return container_command(
            image,
            model,
            command.engine.parameters,
            served_model_name=served_model_name,
            rank_parameters=rank_parameters,
            with_tls=self._speaks_tls,
            variables=command.engine.env,
        )

    async def _resolve(self, command: StartExperiment) -> ResolvedNames:
        return await resolve(
            self._cluster,
            command,
            self._image(command),
            self._images,
            self._namespace(command),
        )


def _rank_parameters(
    image: EngineImage, rank: int | str, size: int, address: str
) -> Mapping[str, Any] | None:
    """Return the engine's flags for its rank; None where it has none."""
    flags = image.engine.rank_flags
    return None if size == 1 or flags is None else flags(rank, size, address, LEADER_PORT)


def _ignore(_: str) -> None:
    """Tell nobody."""


async def _ignore_fact(_: str) -> None:
    """Record nothing."""
