"""GPUs of one model: which devices are alike enough to be one group.

Ranks of one engine wait for each other, so that a slower GPU, or one with less memory, sets the
pace and the limit of all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.model.fleet import Device
from services.scheduler.domain.placement.device_choice import Chosen
from services.scheduler.domain.placement.shares import devices_needed
from shared.gpu.model_names import memory_size, model_of_instance

UNKNOWN_SIZE: Final = -1

Positions = tuple[int, ...]


class Model(NamedTuple):
    """A model with a memory size, counted in steps of 4 GiB; `UNKNOWN_SIZE` if it is not told."""

    name: str
    size: int

    def __str__(self) -> str:
        return self.name if self.size == UNKNOWN_SIZE else f"{self.name} ({4 * self.size} GiB)"


class Size(NamedTuple):
    """How many devices of a node a request needs, and whether they have to be of one model."""

    gpus: int
    one_model: bool


class Usable(NamedTuple):
    """Positions of a node's devices that may serve some day, and those of each model.

    `least` is how many of the rarest model there are.
    """

    positions: Positions
    by_model: Mapping[Model, Positions]
    least: int

    @classmethod
    def of(cls, devices: Sequence[Device], positions: Positions) -> "Usable":
        """Group these of a node's devices.

        One of unknown size may be of every size that its model has, and is a model by itself where
        no size is known.
        """
        groups: dict[Model, Positions] = {}
        for position in positions:
            model = model_of(devices[position])
            groups[model] = (*groups.get(model, ()), position)
        for unknown in [model for model in groups if model.size == UNKNOWN_SIZE]:
            sized = [model for model in groups if model.name == unknown.name and model != unknown]
            for model in sized:
                groups[model] = tuple(sorted((*groups[model], *groups[unknown])))
            if sized:
                del groups[unknown]
        return cls(positions, groups, min(map(len, groups.values()), default=0))

    def for_size(self, size: Size) -> Positions:
        """Return those on which a request of that size could be; none if there are too few."""
        if not size.one_model or len(self.by_model) == 1:
            return self.positions if len(self.positions) >= size.gpus else ()
        groups = [group for group in self.by_model.values() if len(group) >= size.gpus]
        return tuple(sorted({position for group in groups for position in group}))

    def models_with(self, gpus: int) -> Iterable[Model]:
        """Return the models of which there are so many."""
        return [model for model, group in self.by_model.items() if len(group) >= gpus]


def model_of(device: Device) -> Model:
    total_mb = device.total_mb
    return Model(device.name, UNKNOWN_SIZE if total_mb is None else memory_size(total_mb))


def needs_one_model(request: GpuRequest) -> bool:
    """Tell whether all of its GPUs have to be of one model; a single one always is."""
    if request.gpus == request.nodes == 1 and request.shares is None:
        return False  # most are
    return not request.mixed_models and devices_needed(request) * request.nodes > 1


def is_same_model(device: Device, request: GpuRequest) -> bool:
    """Tell whether it is of the model that the request names; a MIG instance is of its GPU's."""
    model, total_mb = request.same_model, device.total_mb
    if model is None:
        return True
    if model_of_instance(device.name) != model.name:
        return False
    if model.memory_total_mb is None or total_mb is None:
        return True
    return memory_size(total_mb) == memory_size(model.memory_total_mb)


def by_model(candidates: Chosen) -> dict[Model, Chosen]:
    """Return the candidates of each model, in their order."""
    groups: dict[Model, Chosen] = {}
    for scored in candidates:
        model = model_of(scored.device)
        groups[model] = (*groups.get(model, ()), scored)
    return groups


def count_alike(able: Iterable[Iterable[Model]]) -> int:
    """Count the most nodes that have a model in common, by the models that suffice on each."""
    counts: dict[Model, int] = {}
    for models in able:
        for model in models:
            counts[model] = counts.get(model, 0) + 1
    return max(
        (count + _count_unsized(counts, model) for model, count in counts.items()), default=0
    )


def _count_unsized(counts: Mapping[Model, int], model: Model) -> int:
    """Count the nodes whose devices may be of that size too, as theirs is not known."""
    return counts.get(Model(model.name, UNKNOWN_SIZE), 0) if model.size != UNKNOWN_SIZE else 0
