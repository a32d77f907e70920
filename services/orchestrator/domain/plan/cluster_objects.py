"""What a task names in a Kubernetes cluster, from its task file."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from schemas.base import NAMESPACE_FORM, NAMESPACE_PATTERN
from schemas.cluster.kubernetes import (
    OBJECT_NAME_FORM,
    OBJECT_NAME_PATTERN,
    ContainerOverrides,
    KubernetesSpec,
    VolumeClaim,
)
from schemas.errors import ErrorCode
from schemas.task.task_file import DeploymentMode, PresetConfig, TaskFile
from services.orchestrator.domain.installation.installation import Installation
from shared.errors import RefusedError
from shared.problems import explain_validation_error

DEFAULT_MOUNT_PATH: Final = "/mnt/models"
_SERVING_RUNTIME: Final = "clusterservingruntime_config"
_BASE_MODEL: Final = "clusterbasemodel_config"


def kubernetes_spec(
    task: TaskFile, mode: DeploymentMode, installation: Installation
) -> KubernetesSpec:
    """Return what the task names in a cluster. Raises RefusedError by the field.

    A preset stands for the cluster's object of that name: nothing of that kind is created.
    """
    if mode is DeploymentMode.KUBERNETES:
        _refuse_ome_blocks(task)
    if (block := task.clusterbasemodel_config) is not None and block.config_overrides:
        raise _refusal(
            f"$.{_BASE_MODEL}.config_overrides",
            "a task changes no model of the cluster: name another ClusterBaseModel",
        )
    claim, is_ome = _claim(task), mode is DeploymentMode.OME
    return KubernetesSpec(
        namespace=_matching(
            task.model.namespace, NAMESPACE_PATTERN, NAMESPACE_FORM, "$.model.namespace"
        ),
        base_model=_base_model(task) if is_ome and claim is None else None,
        claim=claim,
        serving_runtime=_serving_runtime(task, installation) if is_ome else None,
        container=_container(task.clusterservingruntime_config),
    )


def _serving_runtime(task: TaskFile, installation: Installation) -> str | None:
    """Return the ClusterServingRuntime that the task names: in its block, or as a `base_runtime`
    that is no engine here.
    """
    name = _name_of(task.clusterservingruntime_config, _SERVING_RUNTIME)
    if name is not None or installation.find_engine(task.base_runtime) is not None:
        return name
    return _object_name(task.base_runtime, "$.base_runtime")


def _refuse_ome_blocks(task: TaskFile) -> None:
    blocks: Mapping[str, object] = {
        _BASE_MODEL: task.clusterbasemodel_config,
        _SERVING_RUNTIME: task.clusterservingruntime_config,
    }
    for name, block in blocks.items():
        if block is not None:
            raise _refusal(f"$.{name}", "mode 'kubernetes' is without OME: use mode 'ome'")


def _claim(task: TaskFile) -> VolumeClaim | None:
    storage = task.storage
    if storage is None or storage.type == "hf":
        return None
    if storage.type == "hostpath":
        raise _refusal(
            "$.storage.type", "a cluster's pods get no path of a host: use a volume claim ('pvc')"
        )
    fields = {
        "name": storage.pvc_name,
        "subpath": storage.pvc_subpath or "",
        "mount_path": storage.mount_path or DEFAULT_MOUNT_PATH,
    }
    try:
        return msgspec.convert(fields, VolumeClaim)
    except msgspec.ValidationError as error:
        path, sentence = _explain(error, VolumeClaim, fields)
        field = {"name": "pvc_name", "subpath": "pvc_subpath"}.get(path[1:], path[1:])
        raise _refusal(f"$.storage.{field}", sentence) from error


def _base_model(task: TaskFile) -> str | None:
    """Return the cluster's model; None: the model is a hub's, which the engine fetches itself."""
    name = _name_of(task.clusterbasemodel_config, _BASE_MODEL)
    model = task.model.id_or_path
    return name or (model if re.search(OBJECT_NAME_PATTERN, model) else None)


def _name_of(block: PresetConfig | None, path: str) -> str | None:
    if block is None:
        return None
    if block.name is not None:
        return _object_name(block.name, f"$.{path}.name")
    if block.preset is not None:
        return _object_name(block.preset, f"$.{path}.preset")
    return None


def _container(block: PresetConfig | None) -> ContainerOverrides:
    overrides: dict[str, Any] = block.config_overrides if block is not None else {}
    try:
        return msgspec.convert(overrides, ContainerOverrides)
    except msgspec.ValidationError as error:
        path, sentence = _explain(error, ContainerOverrides, overrides)
        raise _refusal(f"$.{_SERVING_RUNTIME}.config_overrides{path}", sentence) from error


def _explain(
    error: msgspec.ValidationError, type_: type[msgspec.Struct], content: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the place below `content`, such as `.name`, and what is wrong there."""
    path, sentence = explain_validation_error(error, type_, msgspec.json.encode(content))
    return (path or "$").removeprefix("$"), sentence


def _object_name(name: str, path: str) -> str:
    if re.search(OBJECT_NAME_PATTERN, name) is None:
        raise _refusal(
            path, f"expected the name of a cluster's object ({OBJECT_NAME_FORM}), got {name!r}"
        )
    return name


def _matching(text: str | None, pattern: str, form: str, path: str) -> str | None:
    if text is not None and re.search(pattern, text) is None:
        raise _refusal(path, f"expected {form}, got {text!r}")
    return text


def _refusal(path: str, message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
