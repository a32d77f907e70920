"""The load of one level: a closed loop or timed arrivals, warmed up and measured without a gap.

Requests of the warm-up, of the measurement and of what follows come out of one stream of load: each
slot of a closed loop goes on where the warm-up left it, and load goes on until the last measured
request is answered. So every measured request meets the load that the level is about.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.arrivals import Load, is_trace, offsets, speed_of
from shared.benchmarks.builtin.conversation import Conversation
from shared.benchmarks.chat_server import LoadLimits, RequestFailed
from shared.benchmarks.client_lag import watch_lag
from shared.benchmarks.levels.measured_level import LevelOutcome, PromptTokens, Record
from shared.benchmarks.metrics import FailedRequest, RequestSample
from shared.benchmarks.traced import NO_TRACE, TracedLoad, size_of
from shared.benchmarks.traffic import RequestSize, Scenario
from shared.clock import utcnow
from shared.traces.prefixes import Prefixes
from shared.traces.sessions import TraceTurn
from shared.waiting import cancel_and_wait, wait_for

PAUSE_AFTER_ERROR_SECONDS: Final = 0.05


class Requests(Protocol):
    """What answers them."""

    @property
    def limits(self) -> LoadLimits: ...

    async def request(
        self,
        size: RequestSize,
        rng: random.Random,
        deadline_seconds: float,
        conversation: Conversation,
    ) -> RequestSample | RequestFailed: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process's part of a level that `of` share, counted from 0. Each sends every `of`-th of
    the same arrivals, of `seed`, from the same `origin` on.
    """

    number: int
    of: int
    seed: int
    origin: float


@dataclass(slots=True, kw_only=True)
class LevelLoad:
    """Runs once. Its load goes on until `others_over` returns: what other processes still measure
    is to meet all of it. That of a trace sends its sessions, and ends with the last; without
    `sizes` they give what requests are, else their times alone.
    """

    server: Requests
    load: Load
    sizes: Scenario | None
    rng: random.Random
    spec: BenchmarkSpec
    on_change: Callable[[], None]
    trace: TracedLoad = NO_TRACE
    seed: int = 0
    part: Part | None = None
    others_over: Callable[[], Awaitable[None]] | None = None
    records: list[Record] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    started_at: datetime | None = None
    started: float = 0.0
    window_ends: float | None = None
    sent_in_all: int = 0
    busy_seconds: float = 0.0
    ended_in_window: int = 0
    failed: int = 0
    prompts: PromptTokens = field(default_factory=PromptTokens)
    _prefixes: Prefixes = field(default_factory=Prefixes)
    _sessions_sent: int = 0
    _origin: float = 0.0
    _sent: int = 0
    _pending: int = 0
    _in_flight: int = 0
    _changed: float = 0.0
    _turned: set[int] = field(default_factory=set)
    _answered: int = 0
    _is_mixed: bool = False
    _is_warm: asyncio.Event = field(default_factory=asyncio.Event)
    _is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        self.on_change()
        if not self.spec.warmup_requests:
            self._begin()
        drive = self._run_closed_loop if self.load.arrivals is None else self._arrive
        driving = asyncio.create_task(drive())
        lagging = asyncio.create_task(watch_lag(self._note_lag))
        over = asyncio.create_task(self._over())
        try:
            await asyncio.wait({driving, over}, return_when=asyncio.FIRST_COMPLETED)
            if driving.done():
                driving.result()
            if self.others_over is not None:
                await self.others_over()
        finally:
            await cancel_and_wait(driving, lagging, over)

    def outcome(self) -> LevelOutcome:
        """Return the outcome of a finished run."""
        if self.started_at is None:
            raise RuntimeError("a level ended before it began")
        seconds = self.window_seconds
        return LevelOutcome(
            load=self.load,
            records=self.records,
            lags=self.lags,
            started_at=self.started_at,
            started=self.started,
            window_ends=self.window_ends,
            in_flight_mean=self.in_flight_mean,
            rate_per_s=self.ended_in_window / seconds if seconds else 0.0,
            sent_in_all=self.sent_in_all,
            prompts=self.prompts,
        )

    @property
    def in_flight_mean(self) -> float:
        """Over the window, by what was sent and ended."""
        seconds = self.window_seconds
        return self.busy_seconds / seconds if seconds > 0 else 0.0

    @property
    def window_seconds(self) -> float:
        return max(0.0, (self.window_ends or self.started) - self.started)

    @property
    def elapsed_seconds(self) -> float:
        """Since measuring began; 0 before."""
        return _now() - self.started if self._is_measuring else 0.0

    async def _over(self) -> None:
        if not self._is_measuring and not await wait_for(
            self._is_warm, self.spec.max_time_per_level_seconds
        ):
            self._begin()
        await self._is_over.wait()

    @property
    def _is_measuring(self) -> bool:
        return self.started_at is not None

    def _begin(self) -> None:
        if self._is_measuring:
            return
        self.started_at = utcnow()
        self.started = self._changed = _now()
        self._is_warm.set()
        self.on_change()

    def _takes(self, now: float) -> bool:
        """True if a request sent now is measured; the first that is not ends the window."""
        if not self._is_measuring or self.window_ends is not None:
            return False
        is_more = self._sent < self.spec.max_requests_per_level
        if is_more and now < self.started + self.spec.max_time_per_level_seconds:
            return True
        self._count(now)
        self.window_ends = now
        self._end_if_answered()
        return False

    def _end_if_answered(self) -> None:
        if self.window_ends is not None and not self._pending:
            self._is_over.set()

    def _count(self, now: float) -> None:
        if self._is_measuring and self.window_ends is None:
            self.busy_seconds += self._in_flight * (now - self._changed)
        self._changed = now

    async def _run_closed_loop(self) -> None:
        slots = self.load.concurrency
        is_bare = not self.spec.warmup_requests
        if is_bare:
            slots = min(slots, self.spec.max_requests_per_level)
        first_seconds = 0.0
        self._origin = _now()
        async with asyncio.TaskGroup() as group:
            if not is_bare and (conversation := self._begin_conversation(1)) is not None:
                # Spread over the time of one request, so that equal ones do not march in step.
                waited_from = _now()
                await self._one(self._takes(waited_from), conversation, due=waited_from)
                self._answered += 1
                self._warm_up(0)
                first_seconds = _now() - waited_from
            for slot in range(slots):
                delay = first_seconds * slot / slots
                group.create_task(self._slot(slot, delay, is_bare=is_bare))
        self._begin()  # of a trace that is over before
        self.window_ends = self.window_ends or _now()

    async def _slot(self, slot: int, delay_seconds: float, *, is_bare: bool) -> None:
        await asyncio.sleep(delay_seconds)
        due = _now()
        # The first are of different lengths, or all would go through their turns in step.
        turns = self.spec.turns
        conversation = self._begin_conversation(turns if is_bare else 1 + self._place(slot) % turns)
        while conversation is not None:
            is_measured = self._takes(due)
            if is_bare and not is_measured:
                return
            is_good = await self._one(is_measured, conversation, due=due)
            self._answered += 1
            if conversation.is_over or not is_good:
                conversation = self._begin_conversation()
                self._warm_up(slot)
            elif (wait_seconds := self._wait_seconds(conversation)) > 0:
                await asyncio.sleep(wait_seconds)
            if not is_good:
                # A dead server refuses in microseconds; without a pause it would eat a core.
                await asyncio.sleep(PAUSE_AFTER_ERROR_SECONDS)
            due = _now()

    def _begin_conversation(self, last_turn: int | None = None) -> Conversation | None:
        """Return the next one; None once a trace is over."""
        if self.sizes is not None:
            return Conversation(self.spec.turns, last_turn)
        if self._sessions_sent >= len(self.trace.sessions):
            return None
        turns = self.trace.sessions[self._sessions_sent].turns
        self._sessions_sent += 1
        return Conversation(len(turns), script=turns, prefixes=self._prefixes)

    def _wait_seconds(self, conversation: Conversation) -> float:
        """Return how long it waits after an answer."""
        if not conversation.script:
            return self.spec.think_seconds
        turn = conversation.next_turn
        if turn.at_seconds is None:
            return turn.wait_seconds
        speed = speed_of(self.load.arrivals or "") or 1.0
        return max(0.0, self._origin + turn.at_seconds / speed - _now())

    def _place(self, slot: int) -> int:
        """Among those of all processes."""
        return slot if self.part is None else slot * self.part.of + self.part.number

    def _warm_up(self, slot: int) -> None:
        self._turned.add(slot)
        is_enough = self._answered >= self.spec.warmup_requests
        if is_enough and len(self._turned) >= self.load.concurrency:
            self._begin()

    async def _arrive(self) -> None:
        part = self.part
        origin = self._origin = _now() if part is None else part.origin
        text = self.load.arrivals or ""
        rng = self.rng if part is None else random.Random(part.seed)  # noqa: S311  # no secret
        first, step = (0, 1) if part is None else (part.number, part.of)
        # All of a trace is measured: its first requests are no less a part of it.
        warmup_requests = 0 if is_trace(text) else self.spec.warmup_requests
        async with asyncio.TaskGroup() as group:
            times = self.spec.arrival_trace_seconds or self.trace.times_seconds
            arrivals = offsets(text, times, rng)
            for number, seconds in enumerate(itertools.islice(arrivals, first, None, step)):
                due = origin + seconds
                await asyncio.sleep(max(0.0, due - _now()))
                if number >= warmup_requests and (self._is_mixed or not warmup_requests):
                    self._begin()
                conversation = self._begin_conversation()
                if conversation is None:
                    break
                group.create_task(self._converse(conversation, self._takes(_now()), due))
        self._begin()  # of a trace that is over before
        self._count(_now())
        self.window_ends = self.window_ends or _now()

    async def _converse(self, conversation: Conversation, is_measured: bool, due: float) -> None:
        while await self._one(is_measured, conversation, due=due) and not conversation.is_over:
            await asyncio.sleep(self._wait_seconds(conversation))
            due = _now()
            is_measured = self._takes(due)
        self._is_mixed = True

    async def _one(self, is_measured: bool, conversation: Conversation, *, due: float) -> bool:
        if self._in_flight >= self.load.concurrency and self.load.arrivals is not None:
            self._sent += is_measured
            return self._record(is_measured, due, due, RequestFailed(code="not_sent"))
        sent = _now()
        self._count(sent)
        self._in_flight += 1
        self.sent_in_all += 1
        self._sent += is_measured
        self._pending += is_measured
        size, turn = self._size(conversation)
        try:
            outcome = await self.server.request(
                size, self.rng, self._deadline_seconds(sent), conversation
            )
        finally:
            self._count(_now())
            self._in_flight -= 1
            self._pending -= is_measured
        if isinstance(outcome, RequestSample):
            self.prompts.add(outcome, turn)
        return self._record(is_measured, due, sent, outcome)

    def _size(self, conversation: Conversation) -> tuple[RequestSize, TraceTurn | None]:
        """Return the next request, and the turn of a trace that it is."""
        if self.sizes is None:
            turn = conversation.next_turn
            return size_of(turn, self.trace.form, self.seed), turn
        size = self.sizes(self.rng)
        return (replace(size, prefix_words=()) if conversation.answered else size), None

    def _deadline_seconds(self, now: float) -> float:
        limits, started = self.server.limits, self.started if self._is_measuring else now
        ends = started + self.spec.max_time_per_level_seconds
        return max(0.0, min(limits.request_seconds, ends + limits.drain_seconds - now))

    def _record(
        self, is_measured: bool, due: float, sent: float, outcome: RequestSample | RequestFailed
    ) -> bool:
        ended = _now()
        if self._is_measuring and (self.window_ends is None or ended <= self.window_ends):
            self.ended_in_window += 1
        is_good = isinstance(outcome, RequestSample)
        if is_measured:
            kept = (
                FailedRequest(code=outcome.code, seconds=ended - sent)
                if isinstance(outcome, RequestFailed)
                else outcome
            )
            self.failed += not is_good
            self.records.append(Record(sent, ended, max(0.0, sent - due), kept))
            self.on_change()
        self._end_if_answered()
        return is_good

    def _note_lag(self, seconds: float) -> None:
        if self._is_measuring:
            self.lags.append(seconds)


def _now() -> float:
    return asyncio.get_running_loop().time()
