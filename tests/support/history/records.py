"""What is written down while faults happen: one list, all times of the host's monotonic clock.

CLOCK_MONOTONIC is one for all processes of a host, so a node process may note its own truth.
"""

from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from schemas.scheduler.reservations import ReservationState

Device = tuple[str, str]  # node id, device uuid

HOLDING_STATES = frozenset({ReservationState.GRANTED, ReservationState.ACTIVE})
ENDS = frozenset(
    {
        ReservationState.RELEASED,
        ReservationState.REJECTED,
        ReservationState.CANCELLED,
        ReservationState.TIMED_OUT,
        ReservationState.EXPIRED,
        ReservationState.PREEMPTED,
        ReservationState.LOST,
    }
)


class Record(Struct, frozen=True, kw_only=True, tag=True):
    """Something that happened at `at`, in monotonic seconds."""

    at: float


class NodeFacts(Record, frozen=True, kw_only=True):
    """What a node has beside its devices."""

    node_id: str
    cpu_count: float | None = None
    memory_total_mb: int | None = None


class Verdict(StrEnum):
    """How a command was answered. `unknown`: no answer came, and it may yet be carried out."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Asked(Record, frozen=True, kw_only=True):
    """A command was sent. `copy` counts from 0: the others are the same bytes once more."""

    command_id: UUID
    what: str
    reservation_id: UUID
    copy: int = 0
    epoch: int | None = None
    stopped: bool = False
    gpus: int = 0
    nodes: int = 1
    lease_ttl_seconds: float = 0.0
    cpu_count: float | None = None
    host_memory_mb: int | None = None


class Answered(Record, frozen=True, kw_only=True):
    """The answer of one copy of a command. `fleeting`: a refusal that may be followed by another
    answer.
    """

    command_id: UUID
    verdict: Verdict
    copy: int = 0
    code: str | None = None
    fleeting: bool = False


class Heard(Record, frozen=True, kw_only=True):
    """An event of a reservation as it passed on the bus."""

    message_id: UUID
    event: str
    reservation_id: UUID
    revision: int
    digest: str
    epoch: int | None = None
    devices: tuple[Device, ...] = ()


class LedgerRow(Record, frozen=True, kw_only=True):
    """Committed by the ledger, in the order of `number`; written by triggers, not by the service.

    `at` is from inside the transaction: never after its commit.
    """

    number: int
    reservation_id: UUID
    transaction: int = 0


class Moved(LedgerRow, frozen=True, kw_only=True):
    """A reservation's state. `before` None: it was stored."""

    before: ReservationState | None
    after: ReservationState
    revision: int
    epoch: int | None = None


class LeaseSet(LedgerRow, frozen=True, kw_only=True):
    """A lease was begun or extended."""


class HoldingRow(LedgerRow, frozen=True, kw_only=True):
    """What happened to one device of a reservation."""

    device: Device
    epoch: int


class Held(HoldingRow, frozen=True, kw_only=True):
    """It is this reservation's alone from here on."""


class Quarantined(HoldingRow, frozen=True, kw_only=True):
    """Its holder's stop has to be confirmed first."""


class Freed(HoldingRow, frozen=True, kw_only=True):
    """It may be granted again."""


class WorkRow(Record, frozen=True, kw_only=True):
    """The truth on a node, whoever believes what."""

    device: Device
    reservation_id: UUID
    epoch: int


class Began(WorkRow, frozen=True, kw_only=True):
    """Something runs on the device from here on."""


class Ceased(WorkRow, frozen=True, kw_only=True):
    """Nothing of it runs on the device any more."""


class Confirmed(Record, frozen=True, kw_only=True):
    """A node has told that nothing of a reservation runs on it, and nothing will."""

    node_id: str
    reservation_id: UUID


class Fault(Record, frozen=True, kw_only=True):
    """Something was done to a process, a server or a message."""

    what: str
    target: str = ""


class Replayed(Record, frozen=True, kw_only=True):
    """What the scheduler says when it decides again what it has recorded."""

    checked: int
    different: tuple[int, ...] = ()


class Outage(Record, frozen=True, kw_only=True):
    """Nobody could write to the ledger: Postgres was away, or every scheduler."""

    until: float
    what: str


AnyRecord = (
    NodeFacts
    | Asked
    | Answered
    | Heard
    | Moved
    | LeaseSet
    | Held
    | Quarantined
    | Freed
    | Began
    | Ceased
    | Confirmed
    | Fault
    | Replayed
    | Outage
)
