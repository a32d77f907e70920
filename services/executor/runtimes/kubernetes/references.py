"""What a task names in the cluster, looked up: its model, its claim, its serving runtime."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from schemas.cluster.kubernetes import KubernetesSpec
from schemas.executor.attempts import FailureKind, StartExperiment
from services.executor.domain.verdict import AttemptFailed
from services.executor.engines.image import EngineImage
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.kubernetes.kinds import CLAIMS, BaseModel, Runner, ServingRuntime
from services.executor.runtimes.kubernetes.plan import NamedModel
from shared.engines.table import PROFILES
from shared.kubernetes.errors import FORBIDDEN, KubernetesError
from shared.kubernetes.objects.common import NamedObject
from shared.kubernetes.ome import BASE_MODELS, CLUSTER_MODELS, CLUSTER_RUNTIMES

OME_MOUNT_PATH: Final = "/mnt/models"  # of models in a volume claim, as OME mounts them
_PROGRAMS: Final = {
    name: profile.runtime_pattern
    for name, profile in PROFILES.items()
    if profile.runtime_pattern is not None
}


class ResolvedNames(Struct, frozen=True, kw_only=True):
    """`model_path` is what the engine is to load, `reference` its image."""

    model_path: str
    reference: str
    model: NamedModel | None = None


async def resolve(
    cluster: Cluster,
    command: StartExperiment,
    image: EngineImage,
    images: Mapping[str, EngineImage],
    namespace: str,
) -> ResolvedNames:
    """Raises AttemptFailed with what is not there and what to do about it."""
    names = command.engine.kubernetes or KubernetesSpec()

    async def look_up() -> tuple[NamedModel | None, str]:
        if names.claim is not None:
            await _require_claim(cluster, names.claim.name, namespace)
        model = await _model(cluster, names.base_model, namespace)
        return model, await _reference(cluster, command, image, images)

    what = f"a look at what the task names in namespace {namespace}"
    model, reference = await cluster.patiently(look_up, what)
    path = command.engine.model
    if names.claim is not None:
        path = names.claim.mount_path
    elif model is not None:
        path = _path_of(model)
    return ResolvedNames(model_path=path, reference=reference, model=model)


def engine_of_runner(runner: Runner, images: Mapping[str, EngineImage]) -> str | None:
    """Return which of our engines it is, by its image, else by its program."""
    repository = without_tag(runner.image)
    for name, image in images.items():
        if image.repository is not None and repository.endswith(image.repository):
            return name
    words = " ".join((*runner.command, *runner.args))
    for text in (repository.rpartition("/")[2], words):
        for name, pattern in _PROGRAMS.items():
            if name in images and pattern.search(text):
                return name
    return None


def without_tag(reference: str) -> str:
    """The repository alone; a registry's port is no tag."""
    repository = reference.partition("@")[0]
    head, colon, tag = repository.rpartition(":")
    return head if colon and "/" not in tag else repository


async def _model(cluster: Cluster, name: str | None, namespace: str) -> NamedModel | None:
    """Find a model as OME does: in the namespace, then in the cluster."""
    if name is None:
        return None
    kind = "BaseModel"
    model = await cluster.read(BASE_MODELS, name, BaseModel, namespace=namespace)
    if model is None:
        kind = "ClusterBaseModel"
        model = await cluster.read(CLUSTER_MODELS, name, BaseModel)
    if model is None:
        raise AttemptFailed.of(
            FailureKind.MODEL_MISSING,
            f"the cluster has neither a BaseModel {name} in namespace {namespace} nor a "
            f"ClusterBaseModel {name}: `kubectl get clusterbasemodels` lists those there are, "
            "OME's documentation has ready ones to apply",
        )
    if model.spec.disabled:
        raise AttemptFailed.of(
            FailureKind.MODEL_MISSING, f"{kind} {name} is disabled (spec.disabled)"
        )
    return NamedModel(name=name, kind=kind, spec=model.spec)


def _path_of(model: NamedModel) -> str:
    storage = model.spec.storage
    if storage.path:
        return storage.path
    if storage.storage_uri.startswith("pvc://"):
        return OME_MOUNT_PATH
    raise AttemptFailed.of(
        FailureKind.MODEL_MISSING,
        f"{model.kind} {model.name} does not say where it lies on a node (spec.storage.path)",
    )


async def _require_claim(cluster: Cluster, name: str, namespace: str) -> None:
    try:
        claim = await cluster.read(CLAIMS, name, NamedObject, namespace=namespace)
    except KubernetesError as error:
        if error.code == FORBIDDEN:
            return  # its absence shows when the pod cannot be scheduled
        raise
    if claim is None:
        raise AttemptFailed.of(
            FailureKind.MODEL_MISSING,
            f"namespace {namespace} has no PersistentVolumeClaim {name}: "
            f"`kubectl get pvc -n {namespace}` lists those there are",
        )


async def _reference(
    cluster: Cluster,
    command: StartExperiment,
    image: EngineImage,
    images: Mapping[str, EngineImage],
) -> str:
    name = (command.engine.kubernetes or KubernetesSpec()).serving_runtime
    tag = command.engine.image_tag
    if name is None:
        return image.reference(tag)
    serving_runtime = await cluster.read(CLUSTER_RUNTIMES, name, ServingRuntime)
    if serving_runtime is None:
        raise AttemptFailed.of(
            FailureKind.ENGINE_MISSING,
            f"the cluster has no ClusterServingRuntime {name}: `kubectl get "
            "clusterservingruntimes` lists those there are, OME's documentation has ready ones "
            "to apply",
        )
    runner = serving_runtime.runner
    if runner is None or not runner.image:
        raise AttemptFailed.of(
            FailureKind.ENGINE_MISSING, f"ClusterServingRuntime {name} has no engine with an image"
        )
    engine = engine_of_runner(runner, images)
    if engine != command.engine.engine.lower():
        raise AttemptFailed.of(
            FailureKind.BAD_PARAMETER,
            f"the task's engine is {command.engine.engine}, but ClusterServingRuntime {name} "
            f"runs {engine or 'none that is known here'} ({runner.image})",
        )
    return f"{without_tag(runner.image)}:{tag}" if tag is not None else runner.image
