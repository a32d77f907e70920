"""The request for GPUs of an experiment, by what past experiments like it needed."""

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.executor.attempts import FailureKind
from schemas.task.task_file import GpuPreferences
from services.orchestrator.domain.installation.installation import Installation, Workload
from services.orchestrator.domain.lifecycle import waiting
from services.orchestrator.domain.lifecycle.deadlines import (
    PastHolds,
    expect_hold_seconds,
    longest_hold_seconds,
)
from services.orchestrator.domain.lifecycle.past_memory import PastRun, is_learned, with_memory
from services.orchestrator.domain.lifecycle.retrying import nodes_to_request
from services.orchestrator.domain.records import Decision, Experiment, Task


class PastFacts(Struct, frozen=True, kw_only=True):
    """For how long experiments like one held GPUs, and how much memory of them they had in use."""

    holds: PastHolds = PastHolds()
    peaks: tuple[PastRun, ...] = ()


def learns_memory(preferences: GpuPreferences | None, experiment: Experiment) -> bool:
    """Return whether past peaks decide the memory: until an attempt has run out of it."""
    has_run_out = FailureKind.GPU_OUT_OF_MEMORY in experiment.failed_attempts
    return not has_run_out and is_learned(experiment.request, preferences)


def find_executors(
    installation: Installation, task: Task, experiment: Experiment, gpus: GpuPreferences | None
) -> tuple[str, ...]:
    """Return the present executors that could run the experiment.

    `gpus` are the task's, with its nodes by their ids; None at a server that runs already.
    """
    engine = experiment.engine
    workload = Workload(
        model=engine.model,
        gpus=gpus,
        mode=task.mode,
        engine=engine.engine,
        base_runtime=engine.engine,
        image_tag=engine.image_tag,
    )
    return installation.find_eligible(workload, task.benchmark_tool)


def request_gpus(
    gpus: GpuPreferences | None,
    task: Task,
    experiment: Experiment,
    facts: PastFacts,
    installation: Installation,
    overdue_after: timedelta,
    now: datetime,
    make_id: Callable[[], UUID],
) -> Decision:
    """Request GPUs on the executors that are present now, if any is.

    `gpus` are the task's, with its nodes by their ids.
    """
    experiment, _ = with_memory(experiment, gpus, facts.peaks, task.largest_memory_mb)
    timeout_seconds = task.file.optimization.timeout_per_iteration
    nodes = find_executors(installation, task, experiment, gpus)
    request = replace(
        experiment.request,
        same_model=task.gpu_model,
        node_ids=nodes_to_request(experiment, nodes),
        expected_duration_seconds=expect_hold_seconds(
            facts.holds, longest_hold_seconds(timeout_seconds, overdue_after)
        ),
    )
    return waiting.request_gpus(
        experiment,
        request,
        now,
        attempt_id=make_id(),
        reservation_id=make_id(),
        requester=task.requester,
    )
