"""How many GPUs a tuning configuration needs, from the free form in which people write it."""

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.errors import ErrorCode
from schemas.scheduler.views import EstimateView
from shared.errors import RefusedError
from shared.gpu.sizing import degree, degree_named, memory_per_gpu_mb, world_size_of


def estimate(task_config: Mapping[str, Any]) -> EstimateView:
    """`tp * pp * max(dp, dcp, cp)` of the largest combination, and memory per GPU by model name.

    Raises RefusedError for a degree of parallelism that is no positive whole number.
    """
    world_size = world_size_of(_degrees(task_config))
    return EstimateView(
        gpus=world_size,
        min_memory_mb=memory_per_gpu_mb(_model_name(task_config)),
        world_size=world_size,
    )


def _degrees(task_config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for block in ("parameters", "parallel_config"):
        place = f"$.task_config.{block}"
        for name, values in _mapping(task_config.get(block), place).items():
            kind = degree_named(name)
            if kind is not None:
                for value in _spread(values):
                    yield kind, degree(value, f"{place}.{name}")


def _spread(values: Any) -> list[Any]:
    """A list as it is, the long form's values, a range's end, or the one scalar; nothing counts as
    absent.
    """
    if isinstance(values, Mapping):
        values = values.get("values", values.get("high"))
    if values is None:
        return []
    return list(values) if isinstance(values, list | tuple) else [values]


def _model_name(task_config: Mapping[str, Any]) -> str:
    model = task_config.get("model")
    if isinstance(model, str):
        return model
    name = _mapping(model, "$.task_config.model").get("id_or_path", "")
    return name if isinstance(name, str) else ""


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"expected an object, got {type(value).__name__}", path=path
        )
    return value
