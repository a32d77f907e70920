"""What of a request decides where it fits; requests that share it form one waiting group."""

from datetime import datetime

from msgspec import Struct

from schemas.gpus.gpu_request import WHOLE, GpuModel, GpuRequest, Selector, ShareStrategy
from services.scheduler.domain.model.fleet import HostResources
from services.scheduler.domain.placement.gpu_models import Size, needs_one_model
from services.scheduler.domain.placement.shares import (
    devices_needed,
    hundredths_of,
    least_free,
    unit_hundredths,
)

# The order of a namespace's requests: aged priority, arrival, id; smallest first.
Seniority = tuple[int, int, int]
# The order of the queue: the turn of the namespace, then the same.
Rank = tuple[int, int, int, int]


class Filter(Struct, frozen=True, kw_only=True, cache_hash=True):
    """What each device by itself has to match."""

    min_memory_mb: int | None
    max_utilization_percent: float
    node_ids: tuple[str, ...]
    device_uuids: tuple[str, ...]
    gpu_models: tuple[str, ...]
    require: tuple[Selector, ...]
    min_compute_capability: str | None
    of_shares: bool = False
    enforced_shares: bool = False
    least_free: int = 0
    exceeds_one: bool = False
    mig_profile: str | None = None
    same_model: GpuModel | None = None


class ShareShape(Struct, frozen=True, kw_only=True):
    """What of a request for shares decides whether they fit on devices that may be taken."""

    hundredths: int
    strategy: ShareStrategy
    unfragmented: bool
    mixed_models: bool
    unit: int | None = None


class Shape(Struct, frozen=True, kw_only=True, cache_hash=True):
    """All that decides where a request fits, but its rank and its duration.

    With `shares`, `gpus` is how many free devices of a node they need.
    """

    filter: Filter
    gpus: int
    nodes: int
    balanced: bool
    host_resources: HostResources
    shares: ShareShape | None = None
    one_model: bool = False

    @property
    def size(self) -> Size:
        """The size that it needs of each node."""
        return Size(self.gpus, self.one_model and self.gpus > 1)


class RankedRequest(Struct, frozen=True, kw_only=True):
    """A request with its rank. `ends_at` is when it would end if it began now; None if unknown."""

    request: GpuRequest
    shape: Shape
    rank: Rank
    ends_at: datetime | None


def shape_of(request: GpuRequest) -> Shape:
    """Return the part of the request that decides where it fits."""
    return Shape(
        filter=Filter(
            min_memory_mb=request.min_memory_mb,
            max_utilization_percent=request.max_utilization_percent,
            node_ids=request.node_ids,
            device_uuids=request.device_uuids,
            gpu_models=request.gpu_models,
            require=request.require,
            min_compute_capability=request.min_compute_capability,
            of_shares=request.shares is not None,
            enforced_shares=request.enforced_shares,
            least_free=least_free(request) if request.shares is not None else 0,
            exceeds_one=hundredths_of(request) > WHOLE,
            mig_profile=request.mig_profile,
            same_model=request.same_model,
        ),
        gpus=devices_needed(request),
        nodes=request.nodes,
        balanced=request.balanced_memory,
        host_resources=HostResources.of(request),
        shares=_share_shape(request) if request.shares is not None else None,
        one_model=needs_one_model(request),
    )


def _share_shape(request: GpuRequest) -> ShareShape:
    return ShareShape(
        hundredths=hundredths_of(request),
        strategy=request.share_strategy,
        unfragmented=request.unfragmented,
        unit=unit_hundredths(request),
        mixed_models=request.mixed_models,
    )
