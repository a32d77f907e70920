"""Which tasks have their experiments' answers compared."""

import re
from typing import Final

from schemas.task.quality import QualityProbe
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.plan.expansion import CONFIGURATIONS, Axis, search_axes
from shared.gpu.sizing import hyphenated

# What changes the arithmetic of an answer, in the flags' names: weights, KV cache, attention,
# expert kernels, drafted tokens; the last is of the simulated engine.
_ALTERING: Final = re.compile(
    r"quantization|dtype$|cache-type|attention-(backend|config)|flash-attn"
    r"|(attn|dsa|nsa|gdn|moe|moe-runner|gemm)-(\w+-)?backend|^spec(ulative)?-|draft"
    r"|^answer-drift$"
)


def quality_probe(task: TaskFile) -> QualityProbe | None:
    """The task's, else the usual one if it varies what may change answers."""
    wanted = task.benchmark.quality
    if wanted is None:
        wanted = QualityProbe() if altering_axes(task) else None
    return None if wanted is None or wanted.is_off else wanted


def altering_axes(task: TaskFile) -> list[str]:
    """What varies in the task and may change answers, by name."""
    return [
        name if axis.block == "parameters" else f"{axis.block}.{name}"
        for axis in search_axes(task)
        for name, values in axis.columns().items()
        if (len(set(values)) > 1 or axis.span is not None) and _alters(axis, name)
    ]


def _alters(axis: Axis, name: str) -> bool:
    if axis.block not in {"parameters", CONFIGURATIONS}:
        return axis.block == "quant_config"
    return _ALTERING.search(hyphenated(name)) is not None
