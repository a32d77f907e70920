"""Whose turn it is among namespaces that wait, and what of theirs is borrowed."""

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from services.scheduler.domain.model.inputs import LONG_AGO
from services.scheduler.domain.model.namespaces import NOTHING
from services.scheduler.domain.model.state import State

UNIT: Final = 1_000_000  # of all there is, held now or all the time of late, at weight 1
_USED_BITS: Final = 36
_LEVEL_BITS: Final = 20
_MAX_USED: Final = (1 << _USED_BITS) - 1
_LAST_LEVEL: Final = (1 << _LEVEL_BITS) - 1


class Levels(Struct, frozen=True):
    """How many points of priority a request is behind the highest one that waits.

    Waiting makes up for lower priority, and for no more: age gives a namespace no advantage over
    others. `origin` is the aged priority of a request that is just not behind, `point` one point.
    """

    origin: int
    point: int

    @classmethod
    def of(cls, highest: int, aging_seconds: float, now: datetime) -> "Levels":
        """Waiting counts up to the end of the present tick; a tick is as long as a point."""
        microsecond = timedelta.resolution
        point = timedelta(seconds=aging_seconds) // microsecond
        if not point:
            return cls(-highest, 1)
        ticks = (now - LONG_AGO) // microsecond // point
        return cls((ticks + 1 - highest) * point, point)

    def behind(self, aged_priority: int) -> int:
        return min(_LAST_LEVEL, max(0, -((self.origin - aged_priority) // self.point)))


def next_tick(aging_seconds: float, now: datetime) -> datetime | None:
    """Return when `Levels` change next; None if never."""
    point = timedelta(seconds=aging_seconds)
    return LONG_AGO + ((now - LONG_AGO) // point + 1) * point if point else None


def standing(state: State, namespace: str, hundredths: int) -> int:
    """The turn of its requests for so much, smallest first, but for how far they are behind.

    First what is within guarantees, then who has used least. Requests without a namespace are last.
    """
    if not namespace:
        return (int(state.has_guarantees) << (_USED_BITS + _LEVEL_BITS)) + _MAX_USED
    borrows = state.has_guarantees and not is_guaranteed(state, namespace, hundredths)
    used = min(_MAX_USED, dominant_share(state, namespace))
    return (int(borrows) << (_USED_BITS + _LEVEL_BITS)) + used


def turn(standing: int, levels: Levels | None, aged_priority: int) -> int:
    """First component of the rank: guarantees, then priority, then what was used."""
    return standing + (levels.behind(aged_priority) << _USED_BITS if levels is not None else 0)


def dominant_share(state: State, namespace: str) -> int:
    """The dominant share of what it holds and what it held of late, over its weight."""
    capacity, held_now = state.capacity(), state.held_by(namespace)
    used, window = state.use.by_namespace.get(namespace, NOTHING), state.use.window_seconds
    divisor = window * state.quota(namespace).weight
    return max(
        (now * window + held_before) * UNIT // (there_is * divisor) if there_is else 0
        for now, held_before, there_is in (
            (held_now.hundredths, used.hundredths, capacity.hundredths),
            (held_now.cpu_milli, used.cpu_milli, capacity.cpu_milli),
            (held_now.memory_mb, used.memory_mb, capacity.memory_mb),
        )
    )


def is_guaranteed(state: State, namespace: str, hundredths: int) -> bool:
    """True if the namespace may hold this much more without borrowing."""
    return state.held_by(namespace).hundredths + hundredths <= state.quota(namespace).guaranteed


def count_borrowed(state: State, namespace: str) -> int:
    """Hundredths that it holds above its guarantee, but for what it has to give back."""
    leaving = (state.leases[reservation_id] for reservation_id in state.preempting)
    leaving_hundredths = sum(lease.hundredths for lease in leaving if lease.namespace == namespace)
    return (
        state.held_by(namespace).hundredths - leaving_hundredths - state.quota(namespace).guaranteed
    )
