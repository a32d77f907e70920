"""Preemption: which leases have to end for a request of higher priority, or for a guarantee.

The fewest that suffice, and of as many the youngest; of another namespace never what is within its
guarantee, where there are guarantees.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import combinations
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.scheduler.namespaces import PreemptionCause
from services.scheduler.domain.indexes.node_views import NodeView, NodeViews
from services.scheduler.domain.model.fleet import HostResources
from services.scheduler.domain.model.inputs import LONG_AGO, Lease, QueuedRequest
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.decisions import Preempt
from services.scheduler.domain.placement.device_choice import Scored, best_first, choose
from services.scheduler.domain.placement.gpu_models import Model, model_of
from services.scheduler.domain.placement.request_shape import RankedRequest
from services.scheduler.domain.placement.shares import total_hundredths
from services.scheduler.domain.queue.availability_timeline import usable_held
from services.scheduler.domain.queue.backfill import BackfillForecast
from services.scheduler.domain.queue.fairness import count_borrowed, is_guaranteed
from services.scheduler.domain.queue.waiting_group import WaitingGroup
from services.scheduler.domain.queue.waiting_groups import WaitingGroups

TRIED_IN_ALL_COMBINATIONS: Final = 8  # leases of one node; of more, the largest give way first


class PreemptionOption(Struct, frozen=True):
    """The leases that would have to end for one node to serve its part of a request."""

    node_id: NodeId
    victims: tuple[Lease, ...]

    @property
    def cost(self) -> tuple[int, list[timedelta], NodeId]:
        """Smaller is better."""
        return len(self.victims), _ages(self.victims), self.node_id


class Preemption:
    """Finds the leases to preempt for a waiting request."""

    def __init__(
        self, state: State, views: NodeViews, waiting: WaitingGroups, forecast: BackfillForecast
    ) -> None:
        self._state = state
        self._views = views
        self._waiting = waiting
        self._forecast = forecast

    def decisions(
        self, ranked: RankedRequest, group: WaitingGroup, until: datetime
    ) -> list[Preempt]:
        """Notices for the group's first request, unless it already waits for preempted leases."""
        head, leases = group.head, self._state.leases
        if any(leases[n].preempting_for == head.reservation_id for n in self._state.preempting):
            return []
        return [
            Preempt(
                reservation_id=lease.reservation_id,
                for_reservation_id=head.reservation_id,
                until_at=until,
                cause=_cause(lease, head),
            )
            for lease in self._victims(ranked, group)
        ]

    def _victims(self, ranked: RankedRequest, group: WaitingGroup) -> tuple[Lease, ...]:
        """The leases that have to end so that the group's first request can start; empty if that
        would not help.

        None for gangs with balanced memory: what will be free on each node is not known beforehand.
        None for shares.
        """
        request = ranked.request
        if request.shares is not None or (request.balanced_memory and request.nodes > 1):
            return ()
        filter_index, head = group.filter_index, group.head
        preemptible = self._preemptible(request.priority)
        if self.may_reclaim(head):
            preemptible |= self._find_borrowed(head.namespace)
        if not preemptible:
            return ()
        views = self._views.nodes
        if request.nodes == 1:
            node_ids = {n for lease in preemptible.values() for n in self._state.nodes_of(lease)}
            among = [views[node_id] for node_id in sorted(node_ids) if node_id in views]
        else:
            among = list(self._views.candidates(filter_index.filter))
        models: set[Model] = set()
        if ranked.shape.one_model:
            models.update(*(filter_index.usable_devices(view).by_model for view in among))
        preemption_options = []
        for model in sorted(models) if ranked.shape.one_model else (None,):
            options = [
                option
                for view in among
                if (option := self._option(view, ranked, group, preemptible, model)) is not None
            ]
            victims = self._gather(options, request.nodes, head.namespace)
            if victims is not None:
                preemption_options.append(victims)
        fewest = min(
            preemption_options, key=lambda victims: (len(victims), _ages(victims)), default=()
        )
        return tuple(sorted(fewest, key=lambda lease: lease.reservation_id))

    def _gather(
        self, options: Sequence[PreemptionOption], count: int, namespace: str
    ) -> tuple[Lease, ...] | None:
        """The victims on as many nodes as are wanted, the cheapest first; None if there are not
        so many.
        """
        victims: dict[UUID, Lease] = {}
        nodes = 0
        for option in sorted(options, key=lambda option: option.cost):
            more = victims | {lease.reservation_id: lease for lease in option.victims}
            if nodes < count and self._leaves_guarantees(more.values(), namespace):
                victims, nodes = more, nodes + 1
        return tuple(victims.values()) if nodes == count else None

    def may_find(self, group: WaitingGroup, view: NodeView) -> bool:
        """Return True if a lease on the node could be preempted for the group's first request."""
        priority = group.head.request.priority
        return any(
            lease.preempting_until is None
            and (
                (lease.request.preemptible and lease.request.priority < priority)
                or self._state.has_guarantees
            )
            for lease in self._state.leases_on(view.node_id)
        )

    def may_reclaim(self, entry: QueuedRequest) -> bool:
        """Return True if the request is within its namespace's guarantee, and nothing was taken
        back for it yet.
        """
        hundredths = total_hundredths(entry.request)
        return (
            self._state.has_guarantees
            and not entry.has_reclaimed
            and is_guaranteed(self._state, entry.namespace, hundredths)
        )

    def _find_borrowed(self, namespace: str) -> dict[object, Lease]:
        """Leases of other namespaces that hold more than they are guaranteed."""
        leases = self._state.leases
        borrowing = {
            name
            for name in {lease.namespace for lease in leases.values()} - {namespace}
            if count_borrowed(self._state, name) > 0
        }
        return {
            reservation_id: lease
            for reservation_id, lease in sorted(leases.items())
            if lease.namespace in borrowing and lease.preempting_until is None and not lease.is_over
        }

    def _leaves_guarantees(self, victims: Iterable[Lease], namespace: str) -> bool:
        """Return True if each other namespace still holds what it is guaranteed."""
        if not self._state.has_guarantees:
            return True
        taken_by_namespace: Counter[str] = Counter()
        for lease in victims:
            taken_by_namespace[lease.namespace] += lease.hundredths
        return all(
            name == namespace or amount <= count_borrowed(self._state, name)
            for name, amount in taken_by_namespace.items()
        )

    def _preemptible(self, priority: int) -> dict[object, Lease]:
        leases, preemptible = self._state.leases, self._state.preemptible
        return {
            reservation_id: leases[reservation_id]
            for their_priority in sorted(preemptible)
            if their_priority < priority
            for reservation_id in preemptible[their_priority]
        }

    def _option(
        self,
        view: NodeView,
        ranked: RankedRequest,
        group: WaitingGroup,
        preemptible: dict[object, Lease],
        model: Model | None,
    ) -> PreemptionOption | None:
        """The cheapest on a node, with GPUs of that model alone, or of any with None."""
        filter_index, namespace = group.filter_index, group.namespace
        if model is not None and model not in filter_index.usable_devices(view).by_model:
            return None
        freed: dict[object, list[Scored]] = {}
        reserved_numbers = self._waiting.device_numbers_reserved(view, ranked.rank, None)
        free = [s for s in filter_index.ready(view) if s.device.number not in reserved_numbers]
        for device in usable_held(view, filter_index):
            is_shared = len(device.parts) > 1  # by several leases, of which one end frees a part
            if (
                device.holder in preemptible
                and device.number not in reserved_numbers
                and not is_shared
            ):
                idle = self._forecast.as_idle(device)
                freed.setdefault(device.holder, []).append(idle)
        leases = sorted(
            (
                lease
                for lease in self._state.leases_on(view.node_id)
                if lease.reservation_id in preemptible
            ),
            key=lambda lease: (_age(lease), lease.reservation_id),
        )
        reserved_resources = self._waiting.host_reserved(view, ranked.rank, None)

        def suffices(victims: Sequence[Lease]) -> bool:
            devices = list(free)
            for lease in victims:
                devices += freed.get(lease.reservation_id, [])
            if model is not None:
                devices = [device for device in devices if model_of(device.device) == model]
            released = HostResources.sum(HostResources.of(lease.request) for lease in victims)
            return (
                len(devices) >= ranked.shape.gpus
                and view.has_host_resources(
                    ranked.shape.host_resources, reserved_resources.minus(released)
                )
                and choose(best_first(devices), ranked.request) is not None
            )

        for victims in _choices(leases, freed):
            if self._leaves_guarantees(victims, namespace) and suffices(victims):
                return PreemptionOption(view.node_id, tuple(victims))
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


def _cause(victim: Lease, entry: QueuedRequest) -> PreemptionCause:
    """Return the cause: priority alone, or a guarantee that is taken back."""
    request = victim.request
    outranked = request.preemptible and request.priority < entry.request.priority
    return PreemptionCause.PRIORITY if outranked else PreemptionCause.GUARANTEE


def _ages(leases: Iterable[Lease]) -> list[timedelta]:
    return sorted(map(_age, leases))


def _age(lease: Lease) -> timedelta:
    """Smaller for a younger lease; from a fixed moment, as no other one is needed."""
    return LONG_AGO - lease.granted_at
