"""Engines of a task that turned out not to start here, whose other configurations are not tried."""

from collections.abc import Mapping, Sequence
from typing import Final

from schemas.executor.attempts import FailureKind
from services.orchestrator.domain.records import Task
from services.orchestrator.domain.search.history import RunRecord
from shared.engines.variants import Variant, title_of, variant_of

# What no other configuration of the same engine and version would change.
_KINDS: Final = frozenset(
    {
        FailureKind.ENGINE_MISSING,
        FailureKind.IMAGE_MISSING,
        FailureKind.IMAGE_PULL_FAILED,
    }
)


def find_lost_engines(task: Task, history: Sequence[RunRecord]) -> Mapping[Variant, str]:
    """Return the engines that are left out from here on, and why; none of a task with one engine,
    which has nothing to go on with.
    """
    if not task.file.engines:
        return {}
    lost: dict[Variant, str] = {}
    for run in history:
        variant = variant_of(run.parameters)
        if run.failure in _KINDS and variant not in lost:
            lost[variant] = (
                f"{title_of(variant)} is left out after experiment {run.ordinal}: {run.reason}"
            )
    return lost
