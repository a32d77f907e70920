"""Engines in a cluster, as an attempt sees them: of OME, or as Deployments of our own."""

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from schemas.cluster.kubernetes import KubernetesSpec
from schemas.errors import ErrorCode
from schemas.executor.attempts import EngineSpec, Runtime, RuntimeOffer, StartExperiment
from services.executor.domain.verdict import AttemptFailed
from services.executor.engines.engine import EngineCommand
from services.executor.engines.engine_table import SWITCHED_OFF
from services.executor.engines.image import EngineImage, container_command
from services.executor.runtimes.kubernetes.cluster import Cluster, namespaces_for
from services.executor.runtimes.kubernetes.compile_cache import PodCaches
from services.executor.runtimes.kubernetes.deployment import EngineDeployment
from services.executor.runtimes.kubernetes.ending import ObjectsEnding
from services.executor.runtimes.kubernetes.kinds import PODS
from services.executor.runtimes.kubernetes.objects import (
    Plan,
    engine_container,
    finding_labels,
    objects_of,
    own_labels,
    workload_name,
)
from services.executor.runtimes.kubernetes.preflight import Preflight
from services.executor.runtimes.kubernetes.references import Resolved, resolve
from services.executor.runtimes.runtime import Labels, Launch, RuntimeUnavailable, Workload
from services.executor.settings import ExecutorSettings
from shared.accelerator_rules.cuda_versions import image_cuda
from shared.errors import RefusedError
from shared.kubernetes.errors import FORBIDDEN, KubernetesError
from shared.labels import (
    ATTEMPT_LABEL,
    EPOCH_LABEL,
    EXPERIMENT_LABEL,
    RESERVATION_LABEL,
    written_epoch,
    written_id,
)
from shared.waiting import within

WORKLOADS_SECONDS: Final = 20.0
TEMPLATE: Final = "{{"
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
        """Every engine with an image, unless the cluster lacks something that all of them need."""
        seen = await self._preflight.inspect(self.kind)
        reasons = {name: self._missing(image) for name, image in self._images.items()}
        missing = {name: reason for name, reason in reasons.items() if reason is not None}
        if seen.says:
            missing[self.kind.value] = seen.says
        able = () if seen.is_unable else self._images
        return RuntimeOffer(
            runtime=self.kind,
            engines=tuple(name for name in able if reasons[name] is None),
            missing=missing,
            version=seen.version,
            engine_rules={name: image.engine.rules for name, image in self._images.items()},
            serving_runtimes=seen.serving_runtimes,
            devices=seen.devices,
            image_cuda=self._cuda_of_tags(),
        )

    def _cuda_of_tags(self) -> dict[str, str]:
        """By engine, of those whose usual tag names it: the images cannot be read here."""
        found = {name: image_cuda(image.tag, (), {}) for name, image in self._images.items()}
        return {name: cuda for name, cuda in found.items() if cuda is not None}

    def check(self, command: StartExperiment) -> None:
        """As the contract says."""
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
        made = self._command(image, command, command.engine.model, command.engine.model)
        if self.kind is Runtime.OME and any(TEMPLATE in each for each in made.argv):
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected parameters without {TEMPLATE!r}, which OME takes for a template",
                path="$.parameters",
            )

    async def prepare(self, _: EngineSpec) -> str:
        """Nothing: images are the business of a cluster's nodes."""
        return ""

    async def fetch(
        self, command: StartExperiment, on_progress: Callable[[float, str], None]
    ) -> None:
        """Look up what the task names; nodes pull images when they get a pod."""
        on_progress(0.0, "looking up what the task names in the cluster")
        self._unmade.add(command.reservation_id)
        await self._resolved(command)

    async def start(self, launch: Launch) -> EngineDeployment:
        """As the contract says."""
        command = launch.command
        image = self._image(command)
        self._unmade.add(command.reservation_id)
        resolved = await self._resolved(command)
        placement = command.cluster
        if placement is None:
            raise RuntimeError("a start without a place, which `check` refuses")
        namespace = self._namespace(command)
        plan = Plan(
            kind=self.kind,
            namespace=namespace,
            image=image,
            reference=resolved.reference,
            command=self._command(image, command, resolved.model_path, launch.served_model_name),
            names=command.engine.kubernetes or KubernetesSpec(),
            placement=placement,
            model=resolved.model,
            cache=await self._caches.take(command, namespace, resolved.reference),
        )
        finding = {
            **finding_labels(self._settings, self.kind, launch.labels),
            ATTEMPT_LABEL: str(command.attempt_id),
            # What another holder has taken over since is not this one's to end.
            EPOCH_LABEL: str(launch.labels.epoch or 0),
        }
        # Nothing is made that could not be found again.
        await self._cluster.patiently(
            lambda: self._cluster.found_of(self.kind, finding), "a look at what is there"
        )
        self._unmade.discard(command.reservation_id)
        try:
            for made in objects_of(launch, plan, self._settings):
                await self._cluster.apply(made, finding, launch.labels.epoch or 0)
        except AttemptFailed:
            await self._ending(finding).run()
            raise
        return EngineDeployment(
            cluster=self._cluster,
            caches=self._caches,
            launch=launch,
            plan=plan,
            name=workload_name(command),
            labels=finding,
            intended=engine_container(launch, plan, self._settings),
        )

    async def workloads(self) -> tuple[Workload, ...]:
        """Everything of this installation and executor, one for each reservation."""
        try:
            async with within(WORKLOADS_SECONDS):
                found = await self._cluster.found_of(
                    self.kind, own_labels(self._settings, self.kind)
                )
        except (KubernetesError, TimeoutError) as error:
            raise RuntimeUnavailable(f"the cluster does not say what runs: {error}") from error
        together: dict[UUID, list[tuple[dict[str, str], str]]] = {}
        for each in found:
            labels = each.named.metadata.labels
            reservation_id = written_id(labels.get(RESERVATION_LABEL))
            if reservation_id is not None:
                pod = each.named.metadata.name if each.resource is PODS else ""
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
            await self._cluster.found_of(self.kind, own_labels(self._settings, self.kind))
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
                epoch=written_epoch(labels.get(EPOCH_LABEL)),
                experiment_id=written_id(labels.get(EXPERIMENT_LABEL)),
            ),
            container_ids=pods,
            is_running=bool(pods),
        )

    def _missing(self, image: EngineImage) -> str | None:
        if image.engine.simulated and not self._settings.allow_simulated_engine:
            return SWITCHED_OFF
        return _HOST_PATHS if image.mounts else image.missing()

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
        self, image: EngineImage, command: StartExperiment, model: str, served_model_name: str
    ) -> EngineCommand:
        return container_command(
            image, model, command.engine.parameters, served_model_name=served_model_name
        )

    async def _resolved(self, command: StartExperiment) -> Resolved:
        return await resolve(
            self._cluster,
            command,
            self._image(command),
            self._images,
            self._namespace(command),
        )
