"""Which devices of this node are held, as far as reservation events told."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

ENDED_KEPT: Final = 4096


class Holdings:
    """Live reservations and their devices.

    A reservation that has ended stays ended, however late its grant is heard: events pass without
    order between reservations and questions about them.
    """

    def __init__(self) -> None:
        self._live: dict[UUID, frozenset[str]] = {}
        self._ended: OrderedDict[UUID, None] = OrderedDict()

    @property
    def devices(self) -> frozenset[str]:
        """Every device that some live reservation holds."""
        return frozenset[str]().union(*self._live.values())

    @property
    def reservations(self) -> frozenset[UUID]:
        """The live ones."""
        return frozenset(self._live)

    def grant(self, reservation_id: UUID, devices: Iterable[str]) -> None:
        """Hold devices, unless the reservation has ended."""
        if reservation_id not in self._ended:
            self._live[reservation_id] = frozenset(devices)

    def end(self, reservation_id: UUID) -> None:
        """Give back what a reservation holds, if anything, for good."""
        self._live.pop(reservation_id, None)
        self._ended[reservation_id] = None
        self._ended.move_to_end(reservation_id)
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    def reconcile(self, live: Mapping[UUID, Iterable[str]], asked_about: frozenset[UUID]) -> None:
        """Correct what was heard by what the owner said.

        `asked_about` are the reservations that were live here when the question was put: those that
        the answer lacks have ended; ones granted since are left alone.
        """
        for reservation_id in asked_about - live.keys():
            self.end(reservation_id)
        for reservation_id, devices in live.items():
            self.grant(reservation_id, devices)
