"""How much GPU memory experiments like one that is to start have needed."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.views import PlannedExperiment
from schemas.task.task_file import GpuPreferences, MemorySource
from services.orchestrator.domain.plan.memory_rule import request_mb
from services.orchestrator.domain.records import Experiment
from shared.gpu.model_names import matches_model
from shared.gpu.sizing import hyphenate, memory_per_gpu_mb

MARGIN_PERCENT: Final = 10  # a peak between two samples is not seen
FILLED: Final = 0.8  # of a GPU: an engine that takes what there is does not show what it needs

# Parameters that move no memory of a GPU.
_WITHOUT_EFFECT: Final = frozenset(
    {
        *("decode-log-interval", "default-priority-value", "disable-log-requests"),
        *("disable-log-stats", "log-requests-level", "random-seed", "schedule-conservativeness"),
        *("schedule-policy", "scheduling-policy", "seed", "shutdown-timeout", "stream-interval"),
    }
)
_TAKE_A_PART: Final = frozenset(
    {
        *("free-gpu-memory-fraction", "gpu-memory-utilization"),
        *("kv-cache-free-gpu-memory-fraction", "mem-fraction-static"),
    }
)


E = TypeVar("E", PlannedExperiment, Experiment)


class PastRun(Struct, frozen=True, kw_only=True):
    """An attempt that succeeded, and the most memory that one of its GPUs had in use."""

    parameters: dict[str, Any]
    gpu_model: str
    memory_total_mb: int
    peak_memory_mb: int


class LearnedMemory(Struct, frozen=True, kw_only=True):
    """What to request of each GPU, and what that was learned from."""

    min_memory_mb: int
    peak_memory_mb: int
    gpu_model: str
    runs: int


def learn_memory(
    past: Sequence[PastRun], parameters: Mapping[str, Any], gpu_models: Sequence[str] = ()
) -> LearnedMemory | None:
    """The least that was enough on a model of GPU, of runs with the same parameters as far as these
    matter. None where there were none, and for engines that take a part of the GPU, not what they
    need.
    """
    relevant = _that_matter(parameters)
    if relevant.keys() & _TAKE_A_PART:
        return None
    runs_by_model: dict[str, list[PastRun]] = {}
    for run in past:
        if _that_matter(run.parameters) == relevant and matches_model(run.gpu_model, gpu_models):
            runs_by_model.setdefault(run.gpu_model, []).append(run)
    if any(_fills(run) for runs in runs_by_model.values() for run in runs):
        return None
    return min(
        map(_learn_from, runs_by_model.values()),
        key=lambda learned_memory: learned_memory.min_memory_mb,
        default=None,
    )


def is_learned(request: GpuRequest, gpus: GpuPreferences | None) -> bool:
    """Return whether past experiments decide the requested memory. A MIG instance has what it
    has.
    """
    return not _is_given(request, gpus) and request.mig_profile is None


def with_memory(
    planned: E,
    gpus: GpuPreferences | None,
    past: Sequence[PastRun],
    largest_mb: int | None = None,
) -> tuple[E, LearnedMemory | None]:
    """The experiment with a request for the learned memory, unless its task sets how much.

    Where none was learned, as estimated, at most what the largest GPU has.
    """
    request, engine = planned.request, planned.engine
    if _is_given(request, gpus):
        return replace(planned, memory_source=MemorySource.TASK), None
    learned = None
    if is_learned(request, gpus):
        learned = learn_memory(past, engine.parameters, request.gpu_models)
    if learned is not None:
        memory_mb, source = learned.min_memory_mb, MemorySource.HISTORY
    else:
        estimate = planned.memory_estimate
        memory_mb = estimate_request_mb(planned, largest_mb)
        source = estimate.source if estimate is not None else MemorySource.MODEL_NAME
    gpu_request = replace(request, min_memory_mb=memory_mb)
    return replace(planned, request=gpu_request, memory_source=source), learned


def estimate_request_mb(
    planned: PlannedExperiment | Experiment, largest_mb: int | None = None
) -> int:
    """Return what is asked of each GPU where nothing was learned."""
    estimate = planned.memory_estimate
    if estimate is not None:
        return request_mb(estimate, largest_mb)
    return memory_per_gpu_mb(planned.engine.model)  # of an older release, or a MIG instance


def note_learned_memory(learned: Collection[LearnedMemory], estimated_mb: int) -> str:
    """Return a plan's note on the experiments for which memory is learned, which are some; without
    these it would be estimated, `estimated_mb` at most.
    """
    least = min(learned_memory.min_memory_mb for learned_memory in learned)
    most = max(learned, key=lambda learned_memory: learned_memory.min_memory_mb)
    amount = f"{least} to {most.min_memory_mb}" if least < most.min_memory_mb else f"{least}"
    return (
        f"{amount} MB of each GPU are asked for, as past experiments like {len(learned)} of these"
        f" had at most {most.peak_memory_mb} MB of {most.gpu_model} in use; estimated it would be"
        f" {estimated_mb} MB"
    )


def _is_given(request: GpuRequest, gpus: GpuPreferences | None) -> bool:
    is_by_task = gpus is not None and gpus.min_memory_mb is not None
    return request.min_memory_mb is None or is_by_task


def _that_matter(parameters: Mapping[str, Any]) -> dict[str, Any]:
    spelled = {hyphenate(name): value for name, value in parameters.items()}
    return {name: value for name, value in spelled.items() if name not in _WITHOUT_EFFECT}


def _fills(run: PastRun) -> bool:
    return run.peak_memory_mb >= FILLED * run.memory_total_mb


def _learn_from(runs: Sequence[PastRun]) -> LearnedMemory:
    peak = max(run.peak_memory_mb for run in runs)
    return LearnedMemory(
        min_memory_mb=math.ceil(peak * (100 + MARGIN_PERCENT) / 100),
        peak_memory_mb=peak,
        gpu_model=runs[0].gpu_model,
        runs=len(runs),
    )
