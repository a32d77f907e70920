"""Which further runs of a configuration are measured on the engine that is still up.

Repeats show how far equal runs differ, and starts differ too: each takes its own memory addresses,
graphs and clocks. So a configuration is repeated on fresh starts until it has been measured on
three of them; runs beyond that may share a start, and count by `effective_runs`. A replay takes no
part in the noise.
"""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from schemas.executor.attempts import EngineSpec, Runtime
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.search.history import RunRecord
from shared.engines.table import PROFILES

# Of simulated studies 4 % had another verdict than without shared starts; with two it was 13 %.
MIN_STARTS: Final = 3
# An executor keeps an engine up for less where its start took less.
KEEP_SECONDS: Final = 60.0
FRESH: Final = "fresh start"
_KEEPING: Final = frozenset({Runtime.PROCESS, Runtime.DOCKER})
_AGAIN: Final = frozenset({RunRole.REPEAT, RunRole.REPLAY})


class Keeping(Struct, frozen=True, kw_only=True):
    """Whether a run is measured on the engine of a run before it, and why."""

    is_kept: bool
    reason: str


def find_obstacle(engine: EngineSpec, request: GpuRequest) -> str:
    """Return why no engine like this is kept up between runs; empty: one may be."""
    if engine.runtime not in _KEEPING:
        return "engines of a cluster are started anew for each run"
    if request.nodes > 1:
        return "an engine over several nodes is started anew for each run"
    profile = PROFILES.get(engine.engine.lower())
    reset = profile.state_reset if profile is not None else None
    if reset is None:
        return f"no reset of its state is known of {engine.engine}"
    if reset.of_own_server and engine.runtime is not Runtime.PROCESS:
        return f"{engine.engine} in a container does not reset its state"
    if reset.needs_variable and engine.env.get(reset.needs_variable) != "1":
        return f"its state is reset only with {reset.needs_variable}=1 in the task's `env`"
    return ""


def keep_seconds(engine: EngineSpec, request: GpuRequest, run: RunInfo) -> float | None:
    """Return for how long the engine of a run stays up for the next; None: it ends with its run.

    After the first run of a configuration it ends: the next one needs a fresh start.
    """
    if run.role not in _AGAIN or engine.endpoint is not None:
        return None
    return None if find_obstacle(engine, request) else KEEP_SECONDS


def decide(role: RunRole, repeats: int, past: Sequence[RunRecord]) -> Keeping:
    """Decide whether another run of a configuration, by the ordinal of its first run, may be
    measured on its running engine.
    """
    if role is RunRole.REPLAY:
        return Keeping(is_kept=True, reason="a replay takes no part in the noise between starts")
    starts = count_starts(repeats, past)
    if role is RunRole.REPEAT and starts >= MIN_STARTS:
        return Keeping(is_kept=True, reason=f"it has been measured on {starts} starts")
    return Keeping(is_kept=False, reason="repeats show how far starts differ")


def count_starts(repeats: int, past: Sequence[RunRecord]) -> int:
    """Count the starts on which a configuration has been measured without a disturbance."""
    return len(
        {
            start_of(run)
            for run in past
            if (run.run.repeats or run.ordinal) == repeats
            and run.run.role is not RunRole.SCREEN
            and run.state in FINISHED_EXPERIMENT_STATES
            and run.scored is not None
            and not run.run.contaminated
        }
    )


def start_of(run: RunRecord) -> int:
    """Return the ordinal of the run for which its engine was started."""
    return run.run.kept_from or run.ordinal


def effective_runs(starts: Collection[int]) -> float:
    """Return how many runs on starts of their own tell as much, by the starts of all runs: at
    least as many as starts count, and fewer than runs where some share one (Kish).
    """
    sizes = [sum(start == other for other in starts) for start in set(starts)]
    total = sum(sizes)
    return total * total / sum(size * size for size in sizes) if sizes else 0.0
