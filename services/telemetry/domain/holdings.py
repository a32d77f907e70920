"""Which devices of this node are held, as far as reservation events were received."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.scheduler.reservations import experiment_of_holder

MAX_ENDED: Final = 4096


class Tenant(Struct, frozen=True, kw_only=True):
    """For whom a device is held; empty is unknown."""

    namespace: str = ""
    experiment: str = ""

    @classmethod
    def of(cls, namespace: str, holder: str) -> "Tenant":
        """A reservation's; those of experiments say so in their holder."""
        return cls(namespace=namespace, experiment=experiment_of_holder(holder))


class Holding(Struct, frozen=True, kw_only=True):
    """What one live reservation has of this node."""

    devices: frozenset[str]
    tenant: Tenant = Tenant()


class Holdings:
    """Live reservations and their devices.

    A reservation that has ended stays ended, however late its grant arrives: events and answers to
    queries come in any order.
    """

    def __init__(self) -> None:
        self._live: dict[UUID, Holding] = {}
        self._ended: OrderedDict[UUID, None] = OrderedDict()
        self._is_known = False

    @property
    def is_known(self) -> bool:
        """True once the scheduler has reported what is held."""
        return self._is_known

    @property
    def devices(self) -> frozenset[str]:
        """The devices that some live reservation holds."""
        return frozenset[str]().union(*(holding.devices for holding in self._live.values()))

    @property
    def reservations(self) -> frozenset[UUID]:
        return frozenset(self._live)

    @property
    def holders(self) -> dict[str, tuple[UUID, Tenant]]:
        return {
            device: (reservation_id, holding.tenant)
            for reservation_id, holding in self._live.items()
            for device in holding.devices
        }

    def has_ended(self, reservation_id: UUID) -> bool:
        return reservation_id in self._ended

    def grant(
        self, reservation_id: UUID, devices: Iterable[str], tenant: Tenant | None = None
    ) -> None:
        """Hold devices, unless the reservation has ended."""
        if reservation_id not in self._ended:
            holding = Holding(devices=frozenset(devices), tenant=tenant or Tenant())
            self._live[reservation_id] = holding

    def end(self, reservation_id: UUID) -> None:
        """Release what a reservation holds, if anything, for good."""
        self._live.pop(reservation_id, None)
        self._ended[reservation_id] = None
        self._ended.move_to_end(reservation_id)
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def reconcile(self, live: Mapping[UUID, Holding], queried: frozenset[UUID]) -> None:
        """Correct the received state by the scheduler's answer.

        `queried` are the reservations that were live here when the query was sent: those that the
        answer lacks have ended; ones granted since are left alone.
        """
        self._is_known = True
        for reservation_id in queried - live.keys():
            self.end(reservation_id)
        for reservation_id, holding in live.items():
            self.grant(reservation_id, holding.devices, holding.tenant)
