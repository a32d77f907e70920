"""How many GPUs one configuration needs, and how much memory on each."""

import re
from collections.abc import Iterator
from typing import Any, Final

from schemas.errors import ErrorCode
from schemas.scheduler import GpuRequest
from schemas.task import TaskFile
from services.orchestrator.domain.engines import SPELLINGS, degree_named
from services.orchestrator.domain.expansion import Point
from shared.errors import RefusedError

LARGEST_GROUP: Final = 4096
MEMORY_BY_SIZE_MB: Final = (((70, 65), 20_000), ((13, 7), 12_000))
BASE_MEMORY_MB: Final = 8_000

_BILLIONS: Final = re.compile(r"(?<![\d.])(\d+)b(?![a-z])")


def request_for(task: TaskFile, point: Point, node_ids: tuple[str, ...]) -> GpuRequest:
    """What the configuration asks the scheduler for; the task's `gpus` block goes before estimates.

    Raises RefusedError for a degree of parallelism that is no positive whole number.
    """
    wanted = task.gpus
    count = wanted.count if wanted and wanted.count else world_size(point)
    memory_mb = wanted.min_memory_mb if wanted else None
    return GpuRequest(
        gpus=count,
        min_memory_mb=memory_per_gpu_mb(task.model.id_or_path) if memory_mb is None else memory_mb,
        node_ids=node_ids,
        gpu_models=wanted.models if wanted else (),
        balanced_memory=count > 1,
        priority=wanted.priority if wanted else 0,
        wait_timeout_seconds=task.optimization.wait_timeout_seconds,
    )


def world_size(point: Point) -> int:
    """`tp * pp * max(dp, dcp, cp)`. Raises RefusedError, see `request_for`."""
    degrees = dict.fromkeys(SPELLINGS, 1)
    for kind, value in _degrees(point):
        degrees[kind] = max(degrees[kind], value)
    size = degrees["tp"] * degrees["pp"] * max(degrees["dp"], degrees["dcp"], degrees["cp"])
    if size > LARGEST_GROUP:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {LARGEST_GROUP} GPUs for an experiment, parameters ask for {size}",
            path="$.parameters",
        )
    return size


def memory_per_gpu_mb(model: str) -> int:
    """20,000 for 70B and 65B models, 12,000 for 13B and 7B, 8,000 for all others, by name."""
    billions = {int(size) for size in _BILLIONS.findall(model.lower())}
    for sizes, memory_mb in MEMORY_BY_SIZE_MB:
        if billions & set(sizes):
            return memory_mb
    return BASE_MEMORY_MB


def _degrees(point: Point) -> Iterator[tuple[str, int]]:
    for name, value in point.parameters.items():
        kind = degree_named(name)
        if kind is not None and value is not None:
            yield kind, _degree(value, f"$.parameters.{name}")
    for name, value in point.parallel.items():
        if name in SPELLINGS:
            yield name, value


def _degree(value: Any, path: str) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= LARGEST_GROUP:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a whole number from 1 to {LARGEST_GROUP}, got {value!r}",
            path=path,
        )
    return number
