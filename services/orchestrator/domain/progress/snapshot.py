"""What is decided by when a task goes on: read at once, under its lock."""

from collections.abc import Mapping

from msgspec import Struct

from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES, ExperimentState
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.lifecycle.budget import HeldGpus
from services.orchestrator.domain.records import Attempt, Experiment, Task
from services.orchestrator.domain.search.history import RunRecord


class TaskSnapshot(Struct, frozen=True, kw_only=True):
    """One task and its experiments. `file` is the task's, with its nodes by their ids.

    `pending` are the next that may request GPUs, as many as the task has room for. `history` are
    all of its runs in order, None where nothing depends on them. `holds` is of a task with a budget
    that is not used up. `left_attempts` are ended ones whose engines may be up. `gpu_model` is that
    of its first grant.
    """

    task: Task
    file: TaskFile
    tally: Mapping[ExperimentState, int]
    open_attempts: int
    pending: tuple[Experiment, ...] = ()
    history: tuple[RunRecord, ...] | None = None
    holds: tuple[HeldGpus, ...] = ()
    gpu_model: str | None = None
    left_attempts: tuple[Attempt, ...] = ()

    @property
    def may_start_any(self) -> bool:
        """Return whether experiments may start now, for which executors have to be present."""
        has_any = bool(self.pending) or self.history is not None
        return self.task.may_start_experiments and has_any

    @property
    def unfinished(self) -> int:
        """Return how many experiments have not ended."""
        counts = self.tally.items()
        return sum(count for state, count in counts if state not in FINISHED_EXPERIMENT_STATES)

    @property
    def room(self) -> int:
        """Return how many further reservations the task may have outstanding."""
        return max(0, self.task.file.optimization.max_parallel - self.open_attempts)

    @property
    def has_room_to_propose(self) -> bool:
        """Return whether a search may go on.

        One experiment that waits for GPUs is enough: what is proposed later knows more.
        """
        is_waiting = bool(self.pending) or self.tally.get(ExperimentState.WAITING, 0) > 0
        return not is_waiting and self.unfinished < self.task.file.optimization.max_parallel
