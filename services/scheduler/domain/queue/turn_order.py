"""The order of the queue: where namespaces contend, by their turns, then by seniority."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from services.scheduler.domain.model.inputs import LONG_AGO, QueuedRequest
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.request_shape import Rank
from services.scheduler.domain.placement.shares import total_hundredths
from services.scheduler.domain.queue.fairness import Levels, next_tick, standing, turn
from services.scheduler.domain.queue.order import seniority_of
from services.scheduler.domain.queue.waiting_group import WaitingGroup
from services.scheduler.domain.queue.waiting_groups import WaitingGroups

BEFORE_ALL: Final = -1  # changes of a state: turns are to be worked out


class TurnOrder:
    """Standings and levels as of the latest call of `moves`.

    Turns change with what is held, used and there, with the priorities that wait, and with ticks:
    whatever changes the state outdates it. With one namespace alone all turns are alike.
    """

    def __init__(self, state: State, waiting: WaitingGroups, aging_seconds: float) -> None:
        self._changes = state.changes  # of the state, when turns were worked out
        self._state = state
        self._waiting = waiting
        self._aging_seconds = aging_seconds
        self._levels: Levels | None = None
        self._now = LONG_AGO

    def moves(self, now: datetime | None) -> Iterator[tuple[WaitingGroup, int, Levels | None]]:
        """Groups that have to move, to where; each to be moved before the next. None: no later."""
        waiting, is_outdated = self._waiting, self._changes != self._state.changes
        if now is not None and now != self._now:
            self._now, self._changes, is_outdated = now, BEFORE_ALL, True
        if not is_outdated or not (waiting.is_contended or waiting.has_rivals()):
            return
        self._changes = self._state.changes
        self._levels = None
        if waiting.update_contention() and len(waiting.priorities) > 1:
            self._levels = Levels.of(max(waiting.priorities), self._aging_seconds, self._now)
        for namespace, groups in waiting.by_namespace.items():
            for group in groups.values():
                its_standing = self._standing(namespace, total_hundredths(group.request))
                if (its_standing, self._levels) != (group.standing, group.levels):
                    yield group, its_standing, self._levels

    def rank(self, entry: QueuedRequest) -> Rank:
        """Return the rank that a request has or would have."""
        seniority = seniority_of(entry, self._aging_seconds)
        if not self._waiting.is_contended:
            return 0, *seniority
        its_standing = self._standing(entry.namespace, total_hundredths(entry.request))
        return turn(its_standing, self._levels, seniority[0]), *seniority

    def next_tick(self, now: datetime) -> datetime | None:
        """Return when time alone may change turns."""
        return next_tick(self._aging_seconds, now) if self._levels is not None else None

    def _standing(self, namespace: str, hundredths: int) -> int:
        contended = self._waiting.is_contended
        return standing(self._state, namespace, hundredths) if contended else 0
