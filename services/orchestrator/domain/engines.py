"""The engines a task may name, and how the typed blocks of a task become their flags."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct

from schemas.task import DeploymentMode, TaskFile

KNOWN_ENGINES: Final = ("llamacpp", "sglang", "simulated", "vllm")

_FLAGS: Final[Mapping[str, Mapping[str, str]]] = {
    "sglang": {
        "tp": "tp-size",
        "pp": "pp-size",
        "dp": "dp-size",
        "ep": "ep-size",
        "gemm_dtype": "quantization",
        "kvcache_dtype": "kv-cache-dtype",
    },
    "vllm": {
        "tp": "tensor-parallel-size",
        "pp": "pipeline-parallel-size",
        "dp": "data-parallel-size",
        "dcp": "decode-context-parallel-size",
        "gemm_dtype": "quantization",
        "kvcache_dtype": "kv-cache-dtype",
    },
    "simulated": {"tp": "tp-size"},
}


class Flags(Struct, frozen=True, kw_only=True):
    """Engine flags of one configuration; `unknown` are fields that the engine has no flag for."""

    parameters: dict[str, Any]
    unknown: tuple[str, ...] = ()


def engine_of(base_runtime: str, declared: Collection[str] = ()) -> str | None:
    """The engine that a `base_runtime` names, case ignored; None if it names none we know.

    `declared` are engines that this installation has beside ours.
    """
    if base_runtime in declared:
        return base_runtime
    name = base_runtime.casefold()
    return next((known for known in (*KNOWN_ENGINES, *declared) if known.casefold() == name), None)


def mode_of(task: TaskFile, declared: Collection[str] = ()) -> DeploymentMode:
    """The deployment mode that the task says or, saying none, means."""
    if task.deployment_mode is not None:
        return task.deployment_mode
    has_cluster_block = (
        task.clusterbasemodel_config is not None
        or task.clusterservingruntime_config is not None
        or (task.storage is not None and task.storage.type == "pvc")
    )
    if has_cluster_block or engine_of(task.base_runtime, declared) is None:
        return DeploymentMode.OME
    return DeploymentMode.DOCKER


def flags_of(engine: str, block: str, fields: Mapping[str, Any]) -> Flags:
    """The flags for a point of `quant_config` or `parallel_config`.

    Values that mean "as the engine does it by itself" (`auto`, a degree of 1) need no flag.
    """
    known = _FLAGS.get(engine, {})
    parameters: dict[str, Any] = {}
    unknown = []
    for field, value in fields.items():
        if value in ("auto", 1):
            continue
        if field in known:
            parameters[known[field]] = value
        else:
            unknown.append(f"{block}.{field}")
    return Flags(parameters=parameters, unknown=tuple(unknown))
