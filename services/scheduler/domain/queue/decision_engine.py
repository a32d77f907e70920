"""The decision engine: knows fleet, leases and queue, and decides what changes; deterministic."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from services.scheduler.domain.model.fleet import Fleet
from services.scheduler.domain.model.inputs import Input, QueuedRequest
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.decisions import Decision
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.fairness import UNIT, dominant_share
from services.scheduler.domain.queue.scheduling_cycle import SchedulingCycle
from services.scheduler.domain.queue.what_if import WhatIfSimulation


class DecisionEngine:
    """Takes changes in by `apply`, decides by `decide`, answers by `what_if`; no clock, no I/O.

    Decisions are applied to its own state at once: the devices are held, the request is gone. If
    they could not be committed, discard the engine and build one from the ledger.
    """

    def __init__(self, policy: Policy = Policy()) -> None:  # noqa: B008  # frozen
        self.policy = policy
        self._state = State()
        self._cycle = SchedulingCycle(self._state, policy)

    def apply(self, *inputs: Input) -> None:
        """Apply changes, in order."""
        self._check_no_what_if()
        for change in inputs:
            self._cycle.apply(change)

    def decide(self, now: datetime, *, explain: bool = True) -> tuple[Decision, ...]:
        """Return every decision that can be made now; time-outs have reasons only with
        `explain`.
        """
        self._check_no_what_if()
        return tuple(self._cycle.decide(now, explain=explain))

    def state(self) -> tuple[Input, ...]:
        """The whole state as inputs; a new engine to which they are applied is the same engine."""
        self._check_no_what_if()
        return tuple(self._state.inputs())

    @contextmanager
    def what_if(self, now: datetime) -> Iterator[WhatIfSimulation]:
        """Yield a simulation of what requests would get now, the only way to try one.

        The engine is restored in any case. Nothing else may use it in the block. Works on the live
        state because a copy costs 0.1 s and more until its first answer, this less than a
        millisecond (docs/explanation/performance.md).
        After an error of the engine itself its indexes are not to be trusted: discard it.
        """
        self._check_no_what_if()
        simulation = WhatIfSimulation(self._cycle, self._state, now)
        try:
            yield simulation
        finally:
            simulation.close()

    @property
    def fleet(self) -> Fleet:
        self._check_no_what_if()
        return self._state.fleet()

    @property
    def queue_length(self) -> int:
        """The number of requests that wait."""
        self._check_no_what_if()
        return len(self._state.queue)

    @property
    def waiting(self) -> tuple[QueuedRequest, ...]:
        """The waiting requests, in the order in which they are served."""
        return self.in_order()

    def in_order(self, now: datetime | None = None) -> tuple[QueuedRequest, ...]:
        """Return all requests that wait, in their order at `now`, or as of the latest decision."""
        self._check_no_what_if()
        self._cycle.put_in_order(now)
        return tuple(self._cycle.waiting.in_order())

    def is_over_quota(self, entry: QueuedRequest) -> bool:
        return self._cycle.quota_reason(entry) is not None

    @property
    def is_contended(self) -> bool:
        """True if requests of several namespaces wait, so that turns count."""
        return self._cycle.waiting.has_rivals()

    def dominant_share(self, namespace: str) -> float:
        """Return the number that decides turns: the dominant share of what it holds and held, over
        its weight.
        """
        return dominant_share(self._state, namespace) / UNIT

    def next_decision_at(self, now: datetime) -> datetime | None:
        """The earliest moment at which time alone may change a decision; None if none does.

        Where one namespace alone waits, queue positions do not, as all requests age alike.
        """
        self._check_no_what_if()
        self._cycle.put_in_order(now)
        return self._cycle.next_at(now)

    def _check_no_what_if(self) -> None:
        if self._state.is_recording:
            raise RuntimeError("expected no open what-if, found one: the engine is not as it was")
