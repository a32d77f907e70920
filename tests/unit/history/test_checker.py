"""The checker of recorded histories finds what was put wrong on purpose, and nothing else."""

from collections.abc import Callable
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.scheduler.reservations import ReservationState as State
from tests.support.history.checker import check
from tests.support.history.records import (
    Answered,
    AnyRecord,
    Asked,
    Began,
    Ceased,
    Confirmed,
    Freed,
    Heard,
    Held,
    LeaseSet,
    Moved,
    NodeFacts,
    Outage,
    Quarantined,
    Replayed,
    Verdict,
)

FIRST, SECOND = UUID(int=1), UUID(int=2)
GPU, OTHER = ("alpha", "GPU-0"), ("beta", "GPU-0")
Records = list[AnyRecord]


def heard(at: float, reservation_id: UUID, word: str, revision: int, epoch: int | None) -> Heard:
    return Heard(
        at=at,
        message_id=UUID(int=reservation_id.int * 100 + revision),
        event=f"scheduler.reservation_{word}",
        reservation_id=reservation_id,
        revision=revision,
        digest=word,
        epoch=epoch,
        devices=(GPU,) if word == "granted" else (),
    )


def command(at: float, number: int, what: str, reservation_id: UUID, **more: object) -> Records:
    """A command and its acceptance 10 ms later."""
    asked = Asked(
        at=at,
        command_id=UUID(int=number),
        what=what,
        reservation_id=reservation_id,
        **more,  # type: ignore[arg-type]  # fields of Asked
    )
    return [
        asked,
        Answered(at=at + 0.01, command_id=asked.command_id, verdict=Verdict.ACCEPTED),
    ]


def life(start: float, reservation_id: UUID, epoch: int, *, leaks: bool) -> Records:
    """A reservation of 1 GPU from its request to its end, which is a release or an expiry."""
    number = epoch * 100

    def moved(at: float, step: int, before: State | None, after: State) -> Moved:
        return Moved(
            at=start + at,
            number=number + step,
            reservation_id=reservation_id,
            before=before,
            after=after,
            revision=step,
            epoch=None if before is None else epoch,
            transaction=number + step,
        )

    held = Held(
        at=start + 1, number=number + 2, reservation_id=reservation_id, device=GPU, epoch=epoch
    )
    end = State.EXPIRED if leaks else State.RELEASED
    end_at = 8.0 if leaks else 3.0
    records: Records = [
        *command(start, number, "request", reservation_id, gpus=1, lease_ttl_seconds=3.0),
        moved(0.005, 1, None, State.QUEUED),
        held,
        moved(1, 3, State.QUEUED, State.GRANTED),
        LeaseSet(at=start + 1, number=number + 4, reservation_id=reservation_id),
        heard(start + 1.1, reservation_id, "granted", 2, epoch),
        *command(start + 1.2, number + 1, "renew", reservation_id, epoch=epoch),
        LeaseSet(at=start + 1.2, number=number + 5, reservation_id=reservation_id),
        moved(1.2, 6, State.GRANTED, State.ACTIVE),
        Began(at=start + 1.3, device=GPU, reservation_id=reservation_id, epoch=epoch),
        moved(end_at, 7, State.ACTIVE, end),
        heard(start + end_at + 0.1, reservation_id, end.value, 4, epoch),
    ]
    freed = Freed(
        at=start + end_at, number=number + 9, reservation_id=reservation_id, device=GPU, epoch=epoch
    )
    if not leaks:
        return [
            *records,
            Ceased(at=start + 2.5, device=GPU, reservation_id=reservation_id, epoch=epoch),
            *command(start + 2.6, number + 2, "release", reservation_id, epoch=epoch, stopped=True),
            freed,
        ]
    return [
        *records,
        Quarantined(
            at=start + end_at,
            number=number + 8,
            reservation_id=reservation_id,
            device=GPU,
            epoch=epoch,
        ),
        Ceased(at=start + 9, device=GPU, reservation_id=reservation_id, epoch=epoch),
        Confirmed(at=start + 9.5, node_id="alpha", reservation_id=reservation_id),
        replace(freed, at=start + 10),
    ]


def sound() -> Records:
    """One that leaks and is fenced, then one that is released, on the same device."""
    return [
        NodeFacts(at=0.0, node_id="alpha", cpu_count=4, memory_total_mb=1000),
        *life(0.0, FIRST, 1, leaks=True),
        *life(11.0, SECOND, 2, leaks=False),
    ]


def changed(kind: type[AnyRecord], of: UUID, **fields: object) -> Callable[[Records], Records]:
    """The history with these fields of one reservation's records of a kind."""

    def change(records: Records) -> Records:
        return [
            replace(record, **fields)
            if isinstance(record, kind) and getattr(record, "reservation_id", None) == of
            else record
            for record in records
        ]

    return change


def without(kind: type[AnyRecord], of: UUID) -> Callable[[Records], Records]:
    return lambda records: [
        record
        for record in records
        if not (isinstance(record, kind) and getattr(record, "reservation_id", None) == of)
    ]


def also(*more: AnyRecord) -> Callable[[Records], Records]:
    return lambda records: [*records, *more]


def test_a_history_that_may_be_has_no_violation() -> None:
    assert check(sound()) == []


@pytest.mark.parametrize(
    ("spoil", "rules"),
    [
        pytest.param(
            changed(Ceased, FIRST, at=12.5),
            {"two_at_once", "ran_unheld", "confirmed_while_running"},
            id="a fenced holder runs on into the next grant",
        ),
        pytest.param(
            without(Ceased, SECOND), {"ran_unheld"}, id="work that never stopped after its release"
        ),
        pytest.param(
            also(
                Began(at=10.5, device=OTHER, reservation_id=FIRST, epoch=1),
                Ceased(at=10.6, device=OTHER, reservation_id=FIRST, epoch=1),
            ),
            {"ran_unheld"},
            id="work on a device that was never held",
        ),
        pytest.param(
            changed(Freed, FIRST, number=208), {"held_twice"}, id="the ledger holds one twice"
        ),
        pytest.param(
            also(Replayed(at=20, checked=2, different=(2,))),
            {"replayed_otherwise"},
            id="a decision that cannot be repeated",
        ),
        pytest.param(
            without(Confirmed, FIRST), {"freed_unconfirmed"}, id="freed without confirmation"
        ),
        pytest.param(
            changed(Confirmed, FIRST, at=10.2), {"freed_unconfirmed"}, id="confirmed too late"
        ),
        pytest.param(
            changed(Confirmed, FIRST, at=8.5),
            {"confirmed_while_running"},
            id="a node confirms what still runs",
        ),
        pytest.param(
            lambda records: [
                replace(r, at=r.at + 5, number=r.number + 20)
                if isinstance(r, Moved) and r.after is State.EXPIRED
                else r
                for r in records
            ],
            {"leaked"},
            id="a lease that ends 9 s late",
        ),
        pytest.param(
            also(
                Moved(
                    at=30,
                    number=900,
                    reservation_id=SECOND,
                    before=State.RELEASED,
                    after=State.CANCELLED,
                    revision=9,
                    epoch=2,
                )
            ),
            {"not_one_end"},
            id="an end after the end",
        ),
        pytest.param(
            lambda records: [
                r for r in records if not (isinstance(r, Moved) and r.after is State.RELEASED)
            ],
            {"not_one_end"},
            id="no end",
        ),
        pytest.param(
            lambda records: [
                r for r in records if not (isinstance(r, Heard) and r.event.endswith("released"))
            ],
            {"end_told_wrong"},
            id="an end that nobody heard of",
        ),
        pytest.param(
            also(heard(20, SECOND, "cancelled", 5, 2)), {"end_told_wrong"}, id="two ends are told"
        ),
        pytest.param(
            lambda records: [
                r for r in records if not (isinstance(r, Heard) and r.event.endswith("granted"))
            ],
            {"grant_untold"},
            id="a grant that nobody heard of",
        ),
        pytest.param(
            also(heard(20, UUID(int=3), "granted", 2, 7)),
            {"grant_not_in_ledger"},
            id="a grant that was told and never committed",
        ),
        pytest.param(
            also(replace(heard(20, SECOND, "granted", 2, 2), digest="other")),
            {"event_changed"},
            id="the same event with another body",
        ),
        pytest.param(
            also(replace(heard(20, SECOND, "granted", 2, 2), message_id=UUID(int=999))),
            {"revision_twice"},
            id="one revision twice",
        ),
        pytest.param(
            also(*command(20, 900, "request", UUID(int=3), gpus=1)),
            {"request_lost"},
            id="an accepted request that is not in the ledger",
        ),
        pytest.param(
            lambda records: [
                replace(r, gpus=2) if isinstance(r, Asked) and r.what == "request" else r
                for r in records
            ],
            {"not_what_was_asked"},
            id="fewer devices than asked for",
        ),
        pytest.param(
            lambda records: [
                replace(r, cpu_count=8.0) if isinstance(r, Asked) and r.what == "request" else r
                for r in records
            ],
            {"host_overcommitted"},
            id="more CPUs than the node has",
        ),
        pytest.param(
            also(*command(20, 900, "renew", SECOND, epoch=2)),
            {"renewed_after_end"},
            id="a renewal after the end",
        ),
        pytest.param(
            also(*command(12.5, 900, "renew", SECOND, epoch=1)),
            {"renewed_by_another_epoch"},
            id="a renewal with another's epoch",
        ),
        pytest.param(
            also(
                Answered(
                    at=20,
                    command_id=UUID(int=100),
                    copy=1,
                    verdict=Verdict.REFUSED,
                    code="conflict",
                )
            ),
            {"two_answers"},
            id="two answers to one command",
        ),
        pytest.param(
            lambda records: [
                replace(r, epoch=1 if r.reservation_id == SECOND else 2)
                if isinstance(r, Moved | Held | Began | Ceased) and r.epoch is not None
                else r
                for r in records
            ],
            {
                "epoch_not_larger",
                "epoch_overtaken",
                "grant_not_in_ledger",
                "renewed_by_another_epoch",
            },
            id="epochs that shrink",
        ),
    ],
)
def test_a_spoilt_history_shows_what_was_spoilt(
    spoil: Callable[[Records], Records], rules: set[str]
) -> None:
    assert {violation.rule for violation in check(spoil(sound()))} == rules


def test_unwritable_ledger_time_is_no_leak() -> None:
    def late(record: AnyRecord) -> AnyRecord:
        is_end = isinstance(record, Moved) and record.after is State.EXPIRED
        return replace(record, at=record.at + 5) if is_end else record

    records = [late(record) for record in sound()]

    assert {v.rule for v in check(records)} == {"leaked"}
    assert check([*records, Outage(at=6.0, until=11.0, what="postgres")]) == []
