"""A recorded history put in order: by kind, by reservation, and as spans on devices."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import TypeVar
from uuid import UUID

from msgspec import Struct

from tests.support.history.records import (
    HOLDING_STATES,
    Answered,
    AnyRecord,
    Asked,
    Began,
    Ceased,
    Device,
    Freed,
    Heard,
    Held,
    LedgerRow,
    Moved,
    Quarantined,
)

R = TypeVar("R", bound=AnyRecord)


class Work(Struct, frozen=True, kw_only=True):
    """What ran on a device, from and until when; infinity: it never stopped."""

    device: Device
    reservation_id: UUID
    epoch: int
    began_at: float
    ceased_at: float


class Holding(Struct, frozen=True, kw_only=True):
    """What the ledger held, from and until when."""

    device: Device
    reservation_id: UUID
    epoch: int
    number: int
    held_at: float
    quarantined_at: float | None
    freed_at: float
    freed_number: float


class History:
    """The records by kind and by what they are about. `rows` are in the ledger's order."""

    def __init__(self, records: Iterable[AnyRecord]) -> None:
        self.records = sorted(records, key=lambda record: record.at)
        self.asked = self.of(Asked)
        self.heard = self.of(Heard)
        self.moves: defaultdict[UUID, list[Moved]] = defaultdict(list)
        self.rows = sorted(
            (r for r in self.records if isinstance(r, LedgerRow)), key=lambda row: row.number
        )
        for row in self.rows:
            if isinstance(row, Moved):
                self.moves[row.reservation_id].append(row)
        self.answers: defaultdict[UUID, list[Answered]] = defaultdict(list)
        for answer in self.of(Answered):
            self.answers[answer.command_id].append(answer)
        self.requests = {a.reservation_id: a for a in self.asked if a.what == "request"}
        self.works = tuple(_works(self.records))
        self.holdings = tuple(_holdings(self.rows))

    def of(self, kind: type[R]) -> list[R]:
        """All records of a kind, in the order of their times."""
        return [record for record in self.records if isinstance(record, kind)]

    def ended_at(self, reservation_id: UUID) -> float:
        """When a reservation ceased to be granted or active; infinity while it is."""
        moves = self.moves[reservation_id]
        return next(
            (m.at for m in moves if m.before in HOLDING_STATES and m.after not in HOLDING_STATES),
            inf,
        )


def _works(records: Sequence[AnyRecord]) -> Iterator[Work]:
    running: dict[tuple[Device, UUID, int], float] = {}
    for record in records:
        if isinstance(record, Began):
            running.setdefault((record.device, record.reservation_id, record.epoch), record.at)
        elif isinstance(record, Ceased):
            key = (record.device, record.reservation_id, record.epoch)
            began_at = running.pop(key, None)
            if began_at is not None:
                yield _work(key, began_at, record.at)
    for key, began_at in running.items():
        yield _work(key, began_at, inf)


def _work(key: tuple[Device, UUID, int], began_at: float, ceased_at: float) -> Work:
    device, reservation_id, epoch = key
    return Work(
        device=device,
        reservation_id=reservation_id,
        epoch=epoch,
        began_at=began_at,
        ceased_at=ceased_at,
    )


def _holdings(rows: Sequence[LedgerRow]) -> Iterator[Holding]:
    open_: dict[tuple[Device, UUID], tuple[Held, float | None]] = {}
    for row in rows:
        if isinstance(row, Held):
            open_[(row.device, row.reservation_id)] = (row, None)
        elif isinstance(row, Quarantined):
            held, _ = open_[(row.device, row.reservation_id)]
            open_[(row.device, row.reservation_id)] = (held, row.at)
        elif isinstance(row, Freed):
            held, quarantined_at = open_.pop((row.device, row.reservation_id))
            yield _holding(held, quarantined_at, row.at, row.number)
    for held, quarantined_at in open_.values():
        yield _holding(held, quarantined_at, inf, inf)


def _holding(
    held: Held, quarantined_at: float | None, freed_at: float, freed_number: float
) -> Holding:
    return Holding(
        device=held.device,
        reservation_id=held.reservation_id,
        epoch=held.epoch,
        number=held.number,
        held_at=held.at,
        quarantined_at=quarantined_at,
        freed_at=freed_at,
        freed_number=freed_number,
    )
