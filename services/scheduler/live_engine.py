"""An engine that keeps up with the ledger and the readings; the leader decides by one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from schemas.base import NodeId
from services.scheduler import changes
from services.scheduler.changes import Look
from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.engine import Engine
from services.scheduler.domain.inputs import (
    DeviceGone,
    DeviceSeen,
    Input,
    LeaseEnded,
    LeaseHeld,
    NodeGone,
    NodeSeen,
    RequestEnded,
    RequestQueued,
    Settled,
)
from services.scheduler.domain.policy import Policy
from services.scheduler.fleet_reader import FleetReader
from services.scheduler.mirror import Mirror
from services.scheduler.readings import DeviceKey
from shared.database import Database

Key = tuple[type[Input], UUID | NodeId | int | None]


@dataclass(slots=True)
class Journal:
    """What was told since the last record of the decision log; of the same thing only the last.

    `is_keyframe`: it tells everything, not only what is new.
    """

    is_keyframe: bool = True
    _inputs: dict[Any, Input] = field(default_factory=dict)

    def note(self, inputs: Iterable[Input]) -> None:
        """Add what was told."""
        for one in inputs:
            key = _key(one)
            before = self._inputs.pop(key, None)
            # Came and went between two records: as if it had never been.
            if not (isinstance(one, RequestEnded) and before is not None):
                self._inputs[key] = one

    def encoded(self) -> str:
        """The inputs in order, as JSON."""
        return msgspec.json.encode(list(self._inputs.values())).decode()

    def start_anew(self, state: Iterable[Input] = ()) -> None:
        """Begin the next record; with a whole state it becomes a keyframe."""
        self._inputs.clear()
        self.note(state)
        self.is_keyframe = bool(self._inputs)


@dataclass(slots=True)
class LiveEngine:
    """Built from the ledger, and then told what changes. Thrown away when in doubt."""

    database: Database
    engine: Engine
    mirror: Mirror
    snapshot: str
    journal: Journal = field(default_factory=Journal)
    _own: list[str] = field(default_factory=list)

    @classmethod
    async def load(cls, database: Database, reader: FleetReader, policy: Policy) -> "LiveEngine":
        """Build one from the ledger as it is. Raises UnavailableError while Postgres is away."""
        async with database.transaction() as connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            snapshot, rows = await changes.read_all(connection)
        live = cls(database, Engine(policy), Mirror(reader), snapshot)
        live._tell(live.mirror.take(rows))
        return live

    async def catch_up(self) -> Look:
        """Take over what the ledger says is new. Raises UnavailableError while it is away."""
        async with self.database.statements() as connection:
            seen = await changes.look(connection, self.snapshot, self._own)
            rows = await changes.read(connection, seen)
        self.snapshot = seen.snapshot
        self._own.clear()
        self._tell(self.mirror.take(rows))
        return seen

    def refresh(self, changed: Iterable[DeviceKey]) -> None:
        """Take over newer readings, and silence."""
        self._tell(self.mirror.refresh(changed))

    def committed(self, decisions: Sequence[Decision], xid: str) -> None:
        """The engine's decisions have become true in this transaction."""
        self.mirror.follow(decisions)
        self._own.append(xid)

    def _tell(self, inputs: Iterable[Input]) -> None:
        told = tuple(inputs)
        self.engine.apply(*told)
        self.journal.note(told)


def _key(one: Input) -> Key:
    match one:
        case NodeSeen(node=node):
            return NodeSeen, node.node_id
        case NodeGone(node_id=node_id):
            return NodeSeen, node_id
        case DeviceSeen(device=device):
            return DeviceSeen, device.number
        case DeviceGone(number=number):
            return DeviceSeen, number
        case RequestQueued(entry=entry):
            return RequestQueued, entry.reservation_id
        case RequestEnded(reservation_id=reservation_id):
            return RequestQueued, reservation_id
        case LeaseHeld(lease=lease):
            return LeaseHeld, lease.reservation_id
        case LeaseEnded(reservation_id=reservation_id):
            return LeaseHeld, reservation_id
        case Settled():
            return Settled, None
