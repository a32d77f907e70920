"""What is known of a task under way, and what changed since it was last shown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from schemas.executor.attempts import AttemptPhase, AttemptProgressed
from schemas.gateway.views import GpuMetrics, GpuView
from schemas.orchestrator.experiments import (
    FINISHED_EXPERIMENT_STATES,
    FINISHED_TASK_STATES,
    ExperimentState,
)
from schemas.orchestrator.views import ExperimentView, TaskSpending, TaskView
from services.cli.display.columns import UNKNOWN
from services.cli.display.output import number, settings_text
from services.cli.display.placements import placement_text
from services.cli.display.task_outcome import spending_text

STEP_PERCENT: Final = 25
NOT_READY: Final = frozenset({AttemptPhase.STARTING, AttemptPhase.PULLING, AttemptPhase.LOADING})


def experiments_text(task: TaskView) -> str:
    """`4 experiments`; of a search, which proposes them one by one, `at most 8 experiments`."""
    if task.experiments_total < task.experiments_at_most:
        return f"at most {task.experiments_at_most} experiments"
    return f"{task.experiments_total} experiments"


@dataclass(slots=True)
class TaskProgress:
    """The last answers and frames about one task."""

    task: TaskView | None = None
    experiments: Sequence[ExperimentView] = ()
    positions: Mapping[UUID, int] = field(default_factory=dict)
    _progress: dict[UUID, AttemptProgressed] = field(default_factory=dict)
    _gpus: dict[tuple[str, str], GpuView] = field(default_factory=dict)
    _shown_texts: dict[UUID, tuple[str, ...]] = field(default_factory=dict)
    _ended_shown: int = 0

    @property
    def is_finished(self) -> bool:
        return self.task is not None and self.task.state in FINISHED_TASK_STATES

    @property
    def spending(self) -> TaskSpending | None:
        """The GPU-hours and cost that the task has held as of its last event."""
        return self.task.spending if self.task is not None else None

    @property
    def fraction(self) -> float:
        """The finished part of the whole task, 0 to 1."""
        if not self.experiments:
            return 0.0
        return sum(self.fraction_of(experiment) for experiment in self.experiments) / len(
            self.experiments
        )

    def note(self, frame: GpuMetrics | AttemptProgressed) -> None:
        """Keep the newest of each."""
        if isinstance(frame, AttemptProgressed):
            self._progress[frame.experiment_id] = frame
        else:
            self.note_gpus(frame.gpus)

    def note_gpus(self, gpus: Iterable[GpuView]) -> None:
        """Keep the newest reading of each GPU."""
        self._gpus.update({(gpu.node_id, gpu.uuid): gpu for gpu in gpus})

    def fraction_of(self, experiment: ExperimentView) -> float:
        """1 for what has ended, else what the benchmark last reported."""
        if experiment.state in FINISHED_EXPERIMENT_STATES:
            return 1.0
        progress = self._progress_of(experiment)
        return progress.fraction if progress is not None else 0.0

    def status_of(self, experiment: ExperimentView) -> str:
        """State with queue position while it waits, phase while it runs."""
        if experiment.state in {ExperimentState.PENDING, ExperimentState.WAITING}:
            position = self.positions.get(experiment.experiment_id)
            return f"waiting, position {position}" if position else "waiting"
        phase = self.phase_of(experiment)
        status = f"{experiment.state.value}, {phase}" if phase else experiment.state.value
        return f"{status}{self._in_cluster(experiment)}"

    def phase_of(self, experiment: ExperimentView) -> str | None:
        """The running attempt's phase."""
        if experiment.state is not ExperimentState.RUNNING:
            return None
        progress = self._progress_of(experiment)
        if progress is not None:
            return progress.phase.value
        return experiment.attempts[-1].phase if experiment.attempts else None

    def gpus_of(self, experiment: ExperimentView) -> list[GpuView]:
        """Readings of the GPUs that a starting or running experiment has."""
        if experiment.gpu_info is None or experiment.state in FINISHED_EXPERIMENT_STATES:
            return []
        keys = [(detail.node_id, detail.uuid) for detail in experiment.gpu_info.details]
        return [self._gpus[key] for key in keys if key in self._gpus]

    def news(self) -> list[str]:
        """A line for every experiment whose status or quarter of progress is another one now."""
        lines = []
        for experiment in self.experiments:
            percent = int(self.fraction_of(experiment) * 100) // STEP_PERCENT * STEP_PERCENT
            running = experiment.state is ExperimentState.RUNNING
            status = (self.status_of(experiment), f" {percent} %" if running and percent else "")
            if (
                experiment.state is not ExperimentState.PENDING
                and self._shown_texts.get(experiment.experiment_id) != status
            ):
                self._shown_texts[experiment.experiment_id] = status
                lines.append(self._line(experiment, *status))
        ended = sum(
            experiment.state in FINISHED_EXPERIMENT_STATES for experiment in self.experiments
        )
        if self._ended_shown < ended < len(self.experiments) and self.spending is not None:
            lines.append(f"{ended} ended; {spending_text(self.spending, is_over=False)}")
            self._ended_shown = ended
        return lines

    def _line(self, experiment: ExperimentView, status: str, percent: str) -> str:
        gpus = "".join(f"  [{gpu_line(gpu)}]" for gpu in self.gpus_of(experiment))
        total = len(self.experiments)
        settings = settings_text(experiment.parameters)
        return f"experiment {experiment.ordinal}/{total}  {settings}  {status}{percent}{gpus}"

    def _in_cluster(self, experiment: ExperimentView) -> str:
        """Say where in a cluster it runs, and what it waits for there until it is ready."""
        attempt = experiment.attempts[-1] if experiment.attempts else None
        if attempt is None or experiment.state in FINISHED_EXPERIMENT_STATES:
            return ""
        progress = self._progress_of(experiment)
        is_ready = progress is not None and progress.phase not in NOT_READY
        message = "" if progress is None or is_ready else progress.message
        where = placement_text(attempt.cluster)
        return (f" in {where}" + (f": {message}" if message else "")) if where else ""

    def _progress_of(self, experiment: ExperimentView) -> AttemptProgressed | None:
        progress = self._progress.get(experiment.experiment_id)
        attempts = experiment.attempts
        # Of an attempt before the present one it says nothing any more.
        if progress is None or (attempts and attempts[-1].attempt_id != progress.attempt_id):
            return None
        return progress


def gpu_line(gpu: GpuView) -> str:
    """`GPU 0 NVIDIA H100: 93 %, 41236/81559 MB, 512 W, simulated`."""
    parts = [
        f"GPU {gpu.index} {gpu.name}: {number(gpu.utilization_percent)} %",
        f"{number(gpu.memory_used_mb)}/{number(gpu.memory_total_mb)} MB",
        f"{number(gpu.power_draw_w)} W" if gpu.power_draw_w is not None else f"{UNKNOWN} W",
    ]
    return ", ".join([*parts, "simulated"] if gpu.simulated else parts)


def all_succeeded(experiments: Sequence[ExperimentView]) -> bool:
    """Return whether there are experiments and every one succeeded."""
    return bool(experiments) and all(
        experiment.state is ExperimentState.SUCCEEDED for experiment in experiments
    )
