"""Which tasks have their experiments' answers compared."""

import re
from collections.abc import Iterable
from typing import Final

from schemas.task.quality import QualityProbe
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.configurations import CONFIGURATIONS, ENGINE, Axis
from services.orchestrator.domain.plan.expansion import find_axes
from shared.gpu.sizing import hyphenate

# What changes the arithmetic of an answer, in the flags' names: weights, KV cache, attention,
# expert kernels, drafted tokens; the last is of the simulated engine.
_ALTERING: Final = re.compile(
    r"quantization|dtype$|cache-type|attention-(backend|config)|flash-attn"
    r"|(attn|dsa|nsa|gdn|moe|moe-runner|gemm)-(\w+-)?backend|^spec(ulative)?-|draft"
    r"|^answer-drift$"
)


def quality_probe(task: TaskFile) -> QualityProbe | None:
    """Return the task's, else the usual one if it varies what may change answers, where these are
    texts.
    """
    probe = task.benchmark.quality
    if probe is None and task.benchmark.modality.has_tokens:
        probe = QualityProbe() if altering_axes(find_axes(task)) else None
    return None if probe is None or probe.is_off else probe


def altering_axes(axes: Iterable[Axis]) -> list[str]:
    """Return the names of what varies in a task and may change answers."""
    return [
        name if axis.block in {"parameters", ENGINE} else f"{axis.block}.{name}"
        for axis in axes
        for name, values in axis.columns().items()
        if (len(set(values)) > 1 or axis.span is not None) and _alters(axis, name)
    ]


def _alters(axis: Axis, name: str) -> bool:
    if axis.block not in {"parameters", CONFIGURATIONS}:
        return axis.block in {"quant_config", ENGINE}
    return _ALTERING.search(hyphenate(name)) is not None
