"""How many GPUs a tuning configuration needs, from the free form in which people write it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from schemas.errors import ErrorCode
from schemas.scheduler import EstimateView
from shared.errors import RefusedError

SPELLINGS: Final[dict[str, frozenset[str]]] = {
    "tp": frozenset({"tensor-parallel-size", "tp-size", "tpsize", "tp"}),
    "pp": frozenset({"pipeline-parallel-size", "pp-size", "ppsize", "pp"}),
    "dp": frozenset({"data-parallel-size", "dp-size", "dpsize", "dp"}),
    "cp": frozenset({"context-parallel-size", "cp-size", "cpsize", "cp"}),
    "dcp": frozenset({"decode-context-parallel-size", "dcp-size", "dcpsize", "dcp"}),
}
MEMORY_BY_SIZE_MB: Final = (((70, 65), 20_000), ((13, 7), 12_000))
BASE_MEMORY_MB: Final = 8_000
LARGEST_DEGREE: Final = 4096

_BILLIONS: Final = re.compile(r"(?<![\d.])(\d+)b(?![a-z])")


def estimate(task_config: Mapping[str, Any]) -> EstimateView:
    """`tp * pp * max(dp, dcp, cp)` of the largest combination, and memory per GPU by model name.

    Raises RefusedError for a degree of parallelism that is no positive whole number.
    """
    degrees = dict.fromkeys(SPELLINGS, 1)
    for kind, value in _degrees(task_config):
        degrees[kind] = max(degrees[kind], value)
    world_size = degrees["tp"] * degrees["pp"] * max(degrees["dp"], degrees["dcp"], degrees["cp"])
    return EstimateView(
        gpus=world_size, min_memory_mb=_memory_mb(_model_name(task_config)), world_size=world_size
    )


def _degrees(task_config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for block in ("parameters", "parallel_config"):
        place = f"$.task_config.{block}"
        for name, values in _mapping(task_config.get(block), place).items():
            kind = _kind_of(name)
            if kind is not None:
                for value in _spread(values):
                    yield kind, _degree(value, f"{place}.{name}")


def _kind_of(name: str) -> str | None:
    spelled = name.lower().lstrip("-").replace("_", "-")
    return next((kind for kind, known in SPELLINGS.items() if spelled in known), None)


def _spread(values: Any) -> list[Any]:
    """A list as it is, the long form's values, or the one scalar; nothing counts as absent."""
    if isinstance(values, Mapping):
        values = values.get("values")
    if values is None:
        return []
    return list(values) if isinstance(values, list | tuple) else [values]


def _degree(value: Any, path: str) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= LARGEST_DEGREE:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a whole number from 1 to {LARGEST_DEGREE}, got {value!r}",
            path=path,
        )
    return number


def _model_name(task_config: Mapping[str, Any]) -> str:
    model = task_config.get("model")
    if isinstance(model, str):
        return model
    name = _mapping(model, "$.task_config.model").get("id_or_path", "")
    return name if isinstance(name, str) else ""


def _memory_mb(model_name: str) -> int:
    billions = {int(size) for size in _BILLIONS.findall(model_name.lower())}
    for sizes, memory_mb in MEMORY_BY_SIZE_MB:
        if billions & set(sizes):
            return memory_mb
    return BASE_MEMORY_MB


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"expected an object, got {type(value).__name__}", path=path
        )
    return value
