"""An engine that follows the ledger and the readings; the leader decides by one."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from schemas.base import NodeId
from services.scheduler.domain.model.fleet import Device, Node
from services.scheduler.domain.model.inputs import (
    DemandSeen,
    DeviceGone,
    DeviceSeen,
    FleetComplete,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    NodeGone,
    NodeSeen,
    QueuedRequest,
    QuotaSet,
    RequestEnded,
    RequestQueued,
    UseSeen,
)
from services.scheduler.domain.model.namespaces import Quota
from services.scheduler.domain.placement.decisions import Decision
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from services.scheduler.leader.engine_feed import EngineFeed
from services.scheduler.leader.fleet_reader import FleetReader
from services.scheduler.ledger import change_feed
from services.scheduler.ledger.change_feed import CHANGES_SECONDS, Changes, Rows
from services.scheduler.ledger.rows import demand_rows, use_rows
from services.scheduler.observations.latest_readings import DeviceKey
from shared.logging import log
from shared.postgres.database import Database, to_json

LEARN_SECONDS: Final = 60
MAX_GAP_SECONDS: Final = CHANGES_SECONDS / 3

Key = tuple[type[Input], UUID | NodeId | int | None]


@dataclass(slots=True)
class InputJournal:
    """Inputs since the last record of the decision log; of one thing only the last.

    `is_keyframe`: it holds the whole state, not only what is new.
    """

    is_keyframe: bool = True
    _inputs: dict[Key, Input] = field(default_factory=dict)

    def record(self, inputs: Iterable[Input]) -> None:
        """Add inputs that the engine was given."""
        for change in inputs:
            key = _key(change)
            change_before = self._inputs.pop(key, None)
            # Came and went between two records: as if it had never been.
            if not (isinstance(change, RequestEnded) and change_before is not None):
                self._inputs[key] = change

    def encode(self) -> str:
        """The inputs in order, as JSON."""
        return to_json(list(self._inputs.values()))

    def restart(self, state: Iterable[Input] = ()) -> None:
        """Begin the next record; with a whole state it becomes a keyframe."""
        self._inputs.clear()
        self.record(state)
        self.is_keyframe = bool(self._inputs)


@dataclass(frozen=True, slots=True)
class _Position:
    """Up to where the ledger was read, and when by this process's clock."""

    snapshot: str
    timeline: int
    now: datetime
    at_seconds: float


@dataclass(slots=True)
class LiveEngine:
    """Loaded from the ledger, from then on given what changes; discarded when in doubt."""

    database: Database
    reader: FleetReader
    policy: Policy
    clock: Callable[[], float] = time.monotonic
    engine: DecisionEngine = field(init=False)
    feed: EngineFeed = field(init=False)
    journal: InputJournal = field(init=False)
    _position: _Position | None = None
    _own_xids: list[str] = field(default_factory=list)
    _learned: int | None = None  # of which minute's begin the engine has the demand
    _used: int | None = None  # the use

    def __post_init__(self) -> None:
        self._reset()

    @property
    def is_loaded(self) -> bool:
        """True if the engine is a copy of the ledger."""
        return self._position is not None

    def discard(self) -> None:
        """Forget everything; the next `catch_up` loads from the ledger."""
        self._position = None

    async def catch_up(self) -> Changes:
        """Apply what has changed in the ledger, or load all of it.

        All of it is loaded the first time, after `discard`, and when the last call is so long ago,
        by this process's clock or by the database's, that recorded changes may have been deleted,
        or when another server is the primary now.
        Raises UnavailableError while Postgres is away.
        """
        position = self._position or await self._load()
        changes, rows = await self._read_changes(position)
        if self._is_gap(position, changes):
            log.info("engine_reloading", last_poll_at=position.now)
            changes, rows = await self._read_changes(await self._load())
        self._own_xids.clear()
        self._apply(self.feed.apply_rows(rows))
        await self._learn(changes.now)
        self._position = _Position(changes.snapshot, changes.timeline, changes.now, self.clock())
        return changes

    def apply_readings(self, changed: Iterable[DeviceKey]) -> None:
        """Apply newer readings of these devices, and the silence of nodes."""
        self._apply(self.feed.apply_readings(changed))

    def commit(self, decisions: Sequence[Decision], xid: str) -> None:
        """The engine's decisions are in the ledger, by this transaction."""
        self.feed.apply_decisions(decisions)
        self._own_xids.append(xid)

    def _reset(self) -> None:
        self.engine = DecisionEngine(self.policy)
        self.feed = EngineFeed(self.reader)
        self.journal = InputJournal()
        self._own_xids.clear()
        self._learned = self._used = None

    async def _load(self) -> _Position:
        self.discard()
        async with self.database.transaction() as connection:
            position, rows = await change_feed.read_all(connection)
        self._reset()
        self._apply(self.feed.apply_rows(rows))
        return _Position(position.snapshot, position.timeline, position.now, self.clock())

    async def _learn(self, now: datetime) -> None:
        """Give it the demand, and where namespaces contend their use, up to the minute's begin:
        every scheduler learns the same.
        """
        minute = int(now.timestamp()) // LEARN_SECONDS
        until = datetime.fromtimestamp(minute * LEARN_SECONDS, tz=now.tzinfo)
        if self.policy.density and minute != self._learned:
            async with self.database.statements() as connection:
                self._apply([DemandSeen(demand=await demand_rows.learn(connection, until))])
            self._learned = minute
        if self.engine.is_contended and minute != self._used:
            half_life = self.policy.use_half_life_seconds
            async with self.database.transaction() as connection:
                self._apply([UseSeen(use=await use_rows.learn(connection, until, half_life))])
            self._used = minute

    async def _read_changes(self, since: _Position) -> tuple[Changes, Rows]:
        async with self.database.statements() as connection:
            return await change_feed.poll(connection, since.snapshot, self._own_xids)

    def _is_gap(self, since: _Position, changes: Changes) -> bool:
        if changes.timeline != since.timeline:
            return True
        seconds = abs((changes.now - since.now).total_seconds())
        return max(seconds, self.clock() - since.at_seconds) > MAX_GAP_SECONDS

    def _apply(self, inputs: Iterable[Input]) -> None:
        changes = tuple(inputs)
        self.engine.apply(*changes)
        self.journal.record(changes)


def _key(change: Input) -> Key:
    match change:
        case NodeSeen(node=Node(node_id=node_id)) | NodeGone(node_id=node_id):
            return NodeSeen, node_id
        case DeviceSeen(device=Device(number=number)) | DeviceGone(number=number):
            return DeviceSeen, number
        case (
            RequestQueued(entry=QueuedRequest(reservation_id=queued))
            | RequestEnded(reservation_id=queued)
        ):
            return RequestQueued, queued
        case LeaseHeld(lease=Lease(reservation_id=leased)) | LeaseEnded(reservation_id=leased):
            return LeaseHeld, leased
        case QuotaSet(quota=Quota(namespace=namespace)):
            return QuotaSet, namespace
        case FleetComplete() | DemandSeen() | UseSeen():
            return type(change), None
