"""Requests of one shape and namespace that wait, and what the first of them reserves."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from operator import itemgetter

from msgspec import Struct

from schemas.base import NodeId
from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.indexes.filter_index import FilterIndex
from services.scheduler.domain.model.fleet import NO_HOST_RESOURCES, HostResources
from services.scheduler.domain.model.inputs import QueuedRequest
from services.scheduler.domain.placement.request_shape import Rank, Seniority, Shape
from services.scheduler.domain.queue.fairness import Levels, turn


class NodeReservation(Struct, frozen=True, kw_only=True):
    """Reserved on one node for a group's first request, against all that would not end by `until`.

    Device numbers, and host resources of what is free now. `optimistic`: because the request may
    start there before its shadow time.
    """

    numbers: frozenset[int]
    until: datetime
    host_resources: HostResources = NO_HOST_RESOURCES
    optimistic: bool = False


class BackfillReservation(Struct, frozen=True):
    """What a group's first request reserves against later ones.

    Until its `shadow_time`, at which it starts by the promised ends of leases: `by_node`. Without
    one every device that it could ever use, as it is not known on which it will start;
    `too_many_nodes` if that is only because it may start early on too many.
    """

    shadow_time: datetime | None = None
    too_many_nodes: bool = False
    by_node: Mapping[NodeId, tuple[NodeReservation, ...]] = {}


class WaitingGroup:
    """Requests of one shape and namespace, first in rank first; the first has a reservation.

    What they rank by beside their seniority, `standing` and `levels`, moves them together, so that
    their order in the group never changes.
    """

    def __init__(
        self, shape: Shape, filter_index: FilterIndex, request: GpuRequest, namespace: str = ""
    ) -> None:
        self.shape = shape
        self.filter_index = filter_index
        self.request = request
        self.namespace = namespace
        self.standing = 0
        self.levels: Levels | None = None
        self.entries: list[tuple[Seniority, QueuedRequest]] = []
        self.fits_in_generation = -1  # the fleet's latest in which it was known to fit some day
        self.backfill: BackfillReservation | None = None
        self.backfill_rank: Rank = (0, 0, 0, 0)  # of the first request when `backfill` was made

    def move(self, standing: int, levels: Levels | None) -> None:
        """Give the group another turn; it has no reservation meanwhile."""
        self.standing, self.levels = standing, levels

    def reserve(self, backfill: BackfillReservation | None) -> None:
        """Set the reservation of the first request; `WaitingGroups.set_backfill` alone calls it."""
        self.backfill = backfill
        if backfill is not None:
            self.backfill_rank = self.rank

    def mark_fitting(self, generation: int) -> None:
        """Remember that the fleet of this generation may serve the group some day."""
        self.fits_in_generation = generation

    @property
    def rank(self) -> Rank:
        """The first request's."""
        return self.rank_of(self.entries[0][0])

    @property
    def last_rank(self) -> Rank:
        """The last request's."""
        return self.rank_of(self.entries[-1][0])

    def rank_of(self, seniority: Seniority) -> Rank:
        """The place in the queue of one of its requests."""
        return turn(self.standing, self.levels, seniority[0]), *seniority

    def rank_entries(self) -> Iterator[tuple[Rank, QueuedRequest]]:
        """Yield the group's requests with their ranks, in order."""
        return ((self.rank_of(seniority), entry) for seniority, entry in self.entries)

    @property
    def head(self) -> QueuedRequest:
        return self.entries[0][1]

    def at(self, rank: Rank) -> QueuedRequest | None:
        """The request of that rank as it is now."""
        place = bisect_left(self.entries, rank[1:], key=itemgetter(0))
        if place == len(self.entries) or self.entries[place][0] != rank[1:]:
            return None
        return self.entries[place][1]

    def next_shorter(self, rank: Rank, seconds: float) -> Rank | None:
        """The first request behind that rank that is expected to take less than that."""
        begin = bisect_right(self.entries, rank[1:], key=itemgetter(0))
        for seniority, entry in islice(self.entries, begin, None):
            expected = entry.request.expected_duration_seconds
            if expected is not None and expected < seconds:
                return self.rank_of(seniority)
        return None
