"""What an index knows of one node: its devices that a filter lets through, best first."""

from collections.abc import Mapping
from typing import NamedTuple

from services.scheduler.domain.indexes.node_views import NodeView
from services.scheduler.domain.placement.device_choice import Chosen, nearest, total_score
from services.scheduler.domain.placement.gpu_models import Model, Positions, Usable, by_model
from services.scheduler.domain.placement.topology import Closeness


class Best(NamedTuple):
    """What a node has for a number of GPUs where nothing is reserved."""

    devices: Chosen
    closeness: Closeness
    loss: float  # the scores, smallest first


class IndexEntry:
    """A node's devices that the filter lets through now, best first.

    `usable` is how many could ever be, of the rarest of its `models`; `serial` orders states of one
    node, the entry is replaced as a whole when the node changes. Of a node with several models
    there is such an entry `of` each as well.
    """

    __slots__ = ("_best", "_of_models", "models", "ready", "serial", "usable", "view")

    def __init__(self, view: NodeView, ready: Chosen, usable: Usable, serial: int) -> None:
        self.usable = usable.least
        self.models = usable.by_model
        self.serial = serial
        self.view = view
        self.ready = ready
        self._best: dict[int, Best] = {}
        self._of_models: dict[Model, IndexEntry] | None = None

    def of(self, model: Model | None) -> "IndexEntry | None":
        """Return the entry of one model's devices alone; of all devices with None."""
        if model is None:
            return self
        if len(self.models) == 1:
            return self if model in self.models else None
        if self._of_models is None:
            self._of_models = {
                model: IndexEntry(self.view, ready, _alone(model, self.models), self.serial)
                for model, ready in by_model(self.ready).items()
            }
        return self._of_models.get(model)

    def ready_for(self, gpus: int, model: Model | None) -> "IndexEntry | None":
        """Return the entry of one model's devices, or all; None if not so many are ready."""
        entry = self if model is None else self.of(model)
        return entry if entry is not None and len(entry.ready) >= gpus else None

    def best(self, gpus: int) -> Best:
        """Return the best of the rooms with at least this many ready devices."""
        best = self._best.get(gpus)
        if best is None:
            devices = nearest(self.ready, gpus, self.view.topology) or ()
            best = self._best[gpus] = self.judge(devices)
        return best

    def judge(self, devices: Chosen) -> Best:
        closeness = self.view.topology.closeness([scored.device for scored in devices])
        return Best(devices, closeness, -total_score(devices))


def _alone(model: Model, models: Mapping[Model, Positions]) -> Usable:
    positions = models[model]
    return Usable(positions, {model: positions}, len(positions))
