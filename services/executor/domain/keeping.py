"""Whether an engine stays up between two runs of one configuration, from what its node knows."""

from collections.abc import Iterable
from typing import Final

from schemas.base import NodeId
from schemas.executor.attempts import Runtime, StartExperiment
from schemas.scheduler.views import ReservationView
from services.executor.domain.gang import is_coordinated

KEEPING_RUNTIMES: Final = frozenset({Runtime.PROCESS, Runtime.DOCKER})
SHORTEST_SECONDS: Final = 15.0


def may_leave_engine(command: StartExperiment) -> bool:
    """Return whether its engine may stay up after it: one engine alone, on this host."""
    is_alone = command.gang is None and not is_coordinated(command)
    is_here = command.engine.runtime in KEEPING_RUNTIMES
    return command.keep_seconds is not None and is_alone and is_here


def keep_seconds(wanted_seconds: float, start_seconds: float) -> float:
    """Return for how long it is kept up at most: waiting must not cost more than a start."""
    return min(wanted_seconds, max(SHORTEST_SECONDS, start_seconds))


def misfit(command: StartExperiment, left_command: StartExperiment) -> str:
    """Return what of a start differs from the attempt whose engine it would go on with."""
    for name in ("reservation_id", "epoch", "devices", "engine", "task_id", "namespace", "secrets"):
        if getattr(command, name) != getattr(left_command, name):
            return name
    return ""


def is_wanted(waiting: Iterable[ReservationView], node_id: NodeId) -> bool:
    """Return whether a queued request might be granted what a kept engine holds on this node.

    Without the engine its GPUs would be free now, and whoever waits would be considered first.
    """
    return any(
        queued.request.cluster is None
        and (not queued.request.node_ids or node_id in queued.request.node_ids)
        for queued in waiting
    )
