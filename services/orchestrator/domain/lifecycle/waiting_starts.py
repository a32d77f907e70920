"""Which nodes make ready for which experiments that wait for GPUs."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from schemas.base import NodeId
from schemas.executor.attempts import EngineSpec, Runtime
from schemas.orchestrator.experiments import WaitingStart
from services.orchestrator.domain.records import Attempt, Experiment

# An image or a model for each that waits would fill a disk.
MAX_STARTS: Final = 3
# Where the node is not known, all that are allowed prepare, if they are as few.
FEW_NODES: Final = 4
OF_HOSTS: Final = frozenset({Runtime.DOCKER, Runtime.PROCESS})


class WaitingExperiment(Struct, frozen=True, kw_only=True):
    """An experiment in the queue, with what the scheduler expects; None and () where it cannot."""

    experiment: Experiment
    attempt: Attempt
    queue_position: int | None = None
    expected_node_ids: tuple[NodeId, ...] = ()

    @property
    def likely_node_ids(self) -> tuple[NodeId, ...]:
        allowed = self.experiment.request.node_ids
        return self.expected_node_ids or (allowed if len(allowed) <= FEW_NODES else ())

    @property
    def start(self) -> WaitingStart:
        engine = self.experiment.engine
        return WaitingStart(
            task_id=self.experiment.task_id,
            experiment_id=self.experiment.experiment_id,
            attempt_id=self.attempt.attempt_id,
            engine=EngineSpec(
                runtime=engine.runtime,
                engine=engine.engine,
                model=engine.model,
                image_tag=engine.image_tag,
            ),
        )


def starts_by_node(
    waiting: Iterable[WaitingExperiment], present: Iterable[NodeId]
) -> dict[NodeId, tuple[WaitingStart, ...]]:
    """Return the next few starts for each node that is present, in the order of the queue.

    Of those that need the same image and model the first counts. `waiting` is in the order of those
    without a position.
    """
    starts_by_node_id: dict[NodeId, list[WaitingStart]] = {node_id: [] for node_id in present}
    for experiment in sorted(waiting, key=_place):
        start = experiment.start
        if start.engine.runtime not in OF_HOSTS:
            continue
        for node_id in experiment.likely_node_ids:
            starts = starts_by_node_id.get(node_id, [])
            if len(starts) < MAX_STARTS and start.engine not in (other.engine for other in starts):
                starts.append(start)
    return {node_id: tuple(starts) for node_id, starts in starts_by_node_id.items()}


def _place(waiting: WaitingExperiment) -> tuple[bool, int]:
    position = waiting.queue_position
    return position is None, position or 0
