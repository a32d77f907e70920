"""What runs compared with what is granted, on one node."""

from collections.abc import Collection, Iterable
from uuid import UUID

from msgspec import Struct


class LabelledWorkload(Struct, frozen=True, kw_only=True):
    """A workload by its labels. Without an `experiment_id` it is not an attempt's.

    `is_ours`: the labels name this installation and this node, which may share its host.
    """

    reservation_id: UUID
    experiment_id: UUID | None = None
    is_ours: bool = True


class KnownReservations(Struct, frozen=True, kw_only=True):
    """Reservations: of attempts under way here, of what is being ended already, and fenced ones."""

    under_way: Collection[UUID] = frozenset()
    ending: Collection[UUID] = frozenset()
    fenced: Collection[UUID] = frozenset()


class Comparison(Struct, frozen=True, kw_only=True):
    """What has to stop, with the reason, and what only the scheduler knows."""

    stop: dict[UUID, str]
    ask: tuple[UUID, ...]


def compare(workloads: Iterable[LabelledWorkload], reservations: KnownReservations) -> Comparison:
    """Sort out what runs.

    An attempt's workload without an attempt has no holder of its lease. What is not an
    attempt's, as a command of a person is, holds its lease itself; it goes on until the scheduler
    says that its reservation has ended.
    """
    stop: dict[UUID, str] = {}
    ask: dict[UUID, None] = {}
    for workload in workloads:
        reservation_id = workload.reservation_id
        if reservation_id in reservations.ending:
            continue
        if reservation_id in reservations.fenced:
            stop[reservation_id] = "its reservation has been fenced"
        elif reservation_id in reservations.under_way:
            continue
        elif workload.experiment_id is not None and workload.is_ours:
            stop[reservation_id] = "no attempt under way has it"
        else:
            ask[reservation_id] = None
    return Comparison(
        stop=stop, ask=tuple(reservation_id for reservation_id in ask if reservation_id not in stop)
    )
