"""Which running reservations give way to one of higher priority: the fewest that suffice, and of
as many the youngest.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Final

from msgspec import Struct

from schemas.base import NodeId
from services.scheduler.domain.backfill import Forecast
from services.scheduler.domain.demand import Demand
from services.scheduler.domain.eligibility import room_of
from services.scheduler.domain.fleet import NOTHING, Room
from services.scheduler.domain.inputs import Lease
from services.scheduler.domain.outlook import held_in_time
from services.scheduler.domain.placement import Scored, best_first, choose
from services.scheduler.domain.reach import Reach
from services.scheduler.domain.state import State
from services.scheduler.domain.views import NodeView, Views
from services.scheduler.domain.waiting import Group, Waiting

TRIED_IN_ALL_COMBINATIONS: Final = 8  # leases of one node; of more, the largest give way first
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Ages = tuple[int, ...]


class Way(Struct, frozen=True):
    """How one node could serve its part of a request: whose leases would have to end."""

    node_id: NodeId
    victims: tuple[Lease, ...]

    @property
    def cost(self) -> tuple[int, Ages, NodeId]:
        """Smaller is better."""
        ages = sorted(-_microseconds(lease.granted_at) for lease in self.victims)
        return len(self.victims), tuple(ages), self.node_id


class Preemption:
    """Looks for reservations that a waiting request may end."""

    def __init__(self, state: State, views: Views, waiting: Waiting, forecast: Forecast) -> None:
        self._state = state
        self._views = views
        self._waiting = waiting
        self._forecast = forecast

    def victims(self, demand: Demand, reach: Reach) -> tuple[Lease, ...]:
        """Who would have to stop so that the request can start; empty if that would not help.

        None gives way to groups over several nodes whose memory is to be balanced: what will be
        free on each cannot be told beforehand.
        """
        request = demand.request
        if request.balanced_memory and request.nodes > 1:
            return ()
        weaker = self._weaker(request.priority)
        if not weaker:
            return ()
        views = self._views.nodes
        if request.nodes == 1:
            held = {n for lease in weaker.values() for n in self._state.nodes_of(lease)}
            among = [views[node_id] for node_id in sorted(held) if node_id in views]
        else:
            among = list(self._views.candidates(reach.filter))
        ways = [
            way for view in among if (way := self._way(view, demand, reach, weaker)) is not None
        ]
        if len(ways) < request.nodes:
            return ()
        chosen = sorted(ways, key=lambda way: way.cost)[: request.nodes]
        victims = {lease.reservation_id: lease for way in chosen for lease in way.victims}
        return tuple(victims[reservation_id] for reservation_id in sorted(victims))

    def may_find(self, group: Group, view: NodeView) -> bool:
        """Whether somebody on the node might have to stop for the group's first request."""
        priority = group.head.request.priority
        return any(
            lease.request.preemptible
            and lease.preempting_until is None
            and lease.request.priority < priority
            for lease in self._state.leases_on(view.node_id)
        )

    def _weaker(self, priority: int) -> dict[object, Lease]:
        leases, preemptible = self._state.leases, self._state.preemptible
        return {
            reservation_id: leases[reservation_id]
            for their_priority in sorted(preemptible)
            if their_priority < priority
            for reservation_id in preemptible[their_priority]
        }

    def _way(
        self, view: NodeView, demand: Demand, reach: Reach, weaker: dict[object, Lease]
    ) -> Way | None:
        freed: dict[object, list[Scored]] = {}
        taken: set[int] = set()
        for kept in self._waiting.kept(view, demand.rank, None):
            taken.update(kept.numbers)
        free = [s for s in reach.ready(view) if s.device.number not in taken]
        for device in held_in_time(view, reach):
            if device.holder in weaker and device.number not in taken:
                idle = self._forecast.as_idle(device)
                freed.setdefault(device.holder, []).append(idle)
        leases = sorted(
            (
                lease
                for lease in self._state.leases_on(view.node_id)
                if lease.reservation_id in weaker
            ),
            key=lambda lease: (-_microseconds(lease.granted_at), lease.reservation_id),
        )
        before = self._waiting.set_aside(view, demand.rank, None)

        def suffices(victims: Sequence[Lease]) -> bool:
            devices = list(free)
            released = NOTHING
            for lease in victims:
                devices += freed.get(lease.reservation_id, [])
                released = released.plus(room_of(lease.request))
            aside = Room(
                cpu_count=before.cpu_count - released.cpu_count,
                memory_mb=before.memory_mb - released.memory_mb,
            )
            return (
                len(devices) >= demand.shape.gpus
                and view.has_room(demand.shape.room, aside)
                and choose(best_first(devices), demand.request) is not None
            )

        for victims in _choices(leases, freed):
            if suffices(victims):
                return Way(view.node_id, tuple(victims))
        return None


def _choices(
    leases: Sequence[Lease], freed: dict[object, list[Scored]]
) -> Iterator[Sequence[Lease]]:
    """Fewer first, of as many the youngest first. `leases` are youngest first."""
    if len(leases) <= TRIED_IN_ALL_COMBINATIONS:
        for count in range(len(leases) + 1):
            yield from combinations(leases, count)
        return
    largest = sorted(leases, key=lambda lease: -len(freed.get(lease.reservation_id, ())))
    for count in range(len(leases) + 1):
        yield largest[:count]


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
