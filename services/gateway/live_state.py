"""The newest of what passes on the bus: readings, inventories, progress, changes."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from uuid import UUID

from schemas.base import tag_of
from schemas.catalog import EVENTS
from schemas.executor.attempts import AttemptProgressed, ExecutorReported
from schemas.gateway.views import GpuMetrics, StoredEvent
from schemas.scheduler.nodes import NodeRemoved
from schemas.scheduler.reservations import ReservationEvent
from schemas.telemetry.readings import GpuSampled, InventoryReported
from services.gateway.domain.fleet import LatestSample, reading_views
from services.gateway.ledger.event_writer import read_event
from services.gateway.ledger.eventlog import EventLog
from services.gateway.shared_json import SharedJson
from shared.messaging.bus import Bus

R = TypeVar("R", InventoryReported, ExecutorReported)

FORGET_SECONDS: Final = 600.0
PROGRESS_BUFFERED: Final = 64
REPORTS: Final[dict[str, type[NodeRemoved | InventoryReported | ExecutorReported]]] = {
    tag_of(report): report for report in (NodeRemoved, InventoryReported, ExecutorReported)
}
RESERVATION_EVENTS: Final = tuple(e for e in EVENTS if issubclass(e, ReservationEvent))


@dataclass(slots=True, eq=False)
class ReceivedSample:
    """A node's newest sample, and what was made of it for clients, which most of them share."""

    sample: GpuSampled
    at: float
    encoded: dict[Hashable, tuple[float, int, SharedJson]] = field(default_factory=dict)
    _metrics: GpuMetrics | None = None

    @property
    def metrics(self) -> GpuMetrics:
        if self._metrics is None:
            self._metrics = metrics_of(self.sample)
        return self._metrics


@dataclass(slots=True, eq=False)
class Watcher:
    """One client of live data. What it has not taken yet is replaced by what is newer.

    Waits for a future: an asyncio.Event costs twice as much with a thousand clients, as one object
    more of each is fetched from memory.

    `ledger_changed` is set by every event of the scheduler, `news` by every event of the log and
    every report of progress; both are cleared by the client's handler.
    """

    is_awake: bool = True
    news: asyncio.Event = field(default_factory=asyncio.Event)
    ledger_changed: asyncio.Event = field(default_factory=asyncio.Event)
    samples: dict[str, tuple[ReceivedSample, int]] = field(default_factory=dict)
    progress: deque[AttemptProgressed] = field(
        default_factory=lambda: deque[AttemptProgressed](maxlen=PROGRESS_BUFFERED)
    )
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _waiting: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until something has come that was not taken; no other than the client's handler
        may.
        """
        while not self.is_awake:
            self._waiting = self._loop.create_future()
            await self._waiting

    def wake(self) -> None:
        """Let the client's handler see what has come."""
        self.is_awake = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def receive(self, received: ReceivedSample) -> None:
        """Take a sample in place of the node's last one, if that is still here."""
        node_id = received.sample.node_id
        replaced = self.samples.get(node_id)
        self.samples[node_id] = (received, 0 if replaced is None else replaced[1] + 1)
        self.wake()

    def take(self) -> tuple[Iterable[tuple[ReceivedSample, int]], Sequence[AttemptProgressed]]:
        """Return all that came since the last call, each sample with the number of samples it
        replaced.
        """
        samples, self.samples = self.samples, {}
        progress: Sequence[AttemptProgressed] = ()
        if self.progress:
            progress = tuple(self.progress)
            self.progress.clear()
        self.is_awake = False
        return samples.values(), progress


@dataclass(slots=True)
class LiveState:
    """The newest sample and report of each node, and the watchers to wake.

    `watchers` is in the order in which they came, as they lie in memory: to wake a thousand
    in the order of a set takes nearly half more time.
    """

    monotonic: Callable[[], float] = time.monotonic
    inventories: dict[str, InventoryReported] = field(default_factory=dict)
    executors: dict[str, ExecutorReported] = field(default_factory=dict)
    watchers: dict[Watcher, None] = field(default_factory=dict)
    samples_received: int = 0
    _samples: dict[str, ReceivedSample] = field(default_factory=dict)
    _changes: dict[UUID, set[asyncio.Event]] = field(default_factory=dict)

    async def subscribe(self, bus: Bus) -> None:
        """Subscribe to reports from now on; nothing that passed before is received."""
        await bus.listen(GpuSampled, self.on_sample)
        await bus.listen(AttemptProgressed, self.on_progress)
        for event in RESERVATION_EVENTS:
            await bus.listen(event, self.on_reservation)

    async def restore(self, log: EventLog) -> None:
        """Take what nodes reported before this process started, and follow the log from now on.

        A report from just before the subscription is in the stream, so it comes through the log.
        """
        log.followers.append(self.on_logged)
        for inventory in await log.last_of_each(InventoryReported):
            await self.on_inventory(inventory)
        for report in await log.last_of_each(ExecutorReported):
            await self.on_executor(report)
        for removed in await log.last_of_each(NodeRemoved):
            reports = (self.inventories.get(removed.node_id), self.executors.get(removed.node_id))
            if all(
                report is None or report.occurred_at < removed.occurred_at for report in reports
            ):
                self.forget(removed.node_id)

    def latest(self) -> dict[str, LatestSample]:
        """The newest sample of each node; a node silent for ten minutes is forgotten."""
        now = self.monotonic()
        for node_id, received in list(self._samples.items()):
            if now - received.at > FORGET_SECONDS:
                del self._samples[node_id]
        return {
            node_id: LatestSample(sample=received.sample, age_seconds=now - received.at)
            for node_id, received in self._samples.items()
        }

    async def on_sample(self, sample: GpuSampled) -> None:
        previous = self._samples.get(sample.node_id)
        if previous is not None and not _is_newer(sample, previous.sample):
            return
        received = ReceivedSample(sample, self.monotonic())
        self._samples[sample.node_id] = received
        self.samples_received += 1
        for watcher in self.watchers:
            watcher.receive(received)

    async def on_logged(self, event: StoredEvent) -> None:
        """Take a report of a node, or a change of the ledger, from the event log."""
        for watcher in self.watchers:
            watcher.news.set()
        if event.type.startswith("scheduler."):
            for watcher in self.watchers:
                watcher.ledger_changed.set()
                watcher.wake()
        match _report_in(event):
            case NodeRemoved() as removed:
                self.forget(removed.node_id)
            case InventoryReported() as inventory:
                await self.on_inventory(inventory)
            case ExecutorReported() as report:
                await self.on_executor(report)

    def knows(self, node_id: str) -> bool:
        """Return whether anything of a node has come; one that was removed is not known."""
        return any(node_id in reports for reports in self._by_node)

    def forget(self, node_id: str) -> None:
        """Drop everything that a node has sent."""
        for reports in self._by_node:
            reports.pop(node_id, None)

    @property
    def _by_node(self) -> tuple[dict[str, Any], ...]:
        return (self._samples, self.inventories, self.executors)

    async def on_inventory(self, inventory: InventoryReported) -> None:
        previous = self.inventories.get(inventory.node_id)
        if previous is None or _follows(previous, inventory):
            self.inventories[inventory.node_id] = inventory

    async def on_executor(self, report: ExecutorReported) -> None:
        previous = self.executors.get(report.executor_id)
        if previous is None or _follows(previous, report):
            self.executors[report.executor_id] = report

    async def on_progress(self, progress: AttemptProgressed) -> None:
        for watcher in self.watchers:
            watcher.progress.append(progress)
            watcher.news.set()
            watcher.wake()

    async def on_reservation(self, event: ReservationEvent) -> None:
        for changed in self._changes.get(event.reservation_id, ()):
            changed.set()

    @contextmanager
    def watching(self) -> Iterator[Watcher]:
        """A watcher that starts with the newest sample of every node."""
        watcher = Watcher()
        for received in self._samples.values():
            watcher.receive(received)
        self.watchers[watcher] = None
        try:
            yield watcher
        finally:
            self.watchers.pop(watcher, None)

    @contextmanager
    def changes_of(self, reservation_id: UUID) -> Iterator[asyncio.Event]:
        """Set whenever something happens to a reservation."""
        changed = asyncio.Event()
        self._changes.setdefault(reservation_id, set()).add(changed)
        try:
            yield changed
        finally:
            waiting = self._changes[reservation_id]
            waiting.discard(changed)
            if not waiting:
                del self._changes[reservation_id]


def _report_in(event: StoredEvent) -> NodeRemoved | InventoryReported | ExecutorReported | None:
    """The report of a node; None for any other event, and for one that cannot be read."""
    kind = REPORTS.get(event.type)
    return None if kind is None else read_event(event.subject, event.event, kind)


def _follows(previous: R, report: R) -> bool:
    """Compare two reports by their numbers, as a node's clock may be set back."""
    return report.boot_id != previous.boot_id or report.revision >= previous.revision


def _is_newer(sample: GpuSampled, previous: GpuSampled) -> bool:
    return sample.boot_id != previous.boot_id or sample.sequence > previous.sequence


def metrics_of(sample: GpuSampled) -> GpuMetrics:
    """A sample as clients see it."""
    return GpuMetrics(
        node_id=sample.node_id,
        sequence=sample.sequence,
        observed_at=sample.observed_at,
        simulated=sample.simulated,
        gpus=reading_views(sample),
    )
