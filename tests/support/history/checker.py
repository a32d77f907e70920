"""Reads a recorded history and tells what in it must not be. Pure: records in, violations out."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import Final, TypeVar
from uuid import UUID

from msgspec import Struct

from schemas.scheduler.reservations import ReservationState
from tests.support.history.history import History, Holding, Work
from tests.support.history.records import (
    ENDS,
    AnyRecord,
    Asked,
    Confirmed,
    Device,
    Heard,
    LeaseSet,
    Moved,
    NodeFacts,
    Outage,
    Replayed,
    Verdict,
)

LEAK_SECONDS: Final = 5.0
_STATES: Final = {state.value: state for state in ReservationState}


class Violation(Struct, frozen=True, kw_only=True, order=True):
    """A rule that was broken, where, and when."""

    rule: str
    at: float
    detail: str


Rule = Callable[[History], Iterator[Violation]]


def check(records: Iterable[AnyRecord]) -> list[Violation]:
    """Every violation of every rule, by rule and time; empty for a history that may be."""
    history = History(records)
    return sorted(violation for rule in RULES for violation in rule(history))


def one_at_a_time(history: History) -> Iterator[Violation]:
    """No two reservations ever run on one device, and none runs on what it does not hold."""
    for device, works in _by_device(history.works).items():
        ordered = sorted(works, key=lambda work: work.began_at)
        for before, after in pairwise(ordered):
            if after.began_at < before.ceased_at and after.reservation_id != before.reservation_id:
                yield Violation(
                    rule="two_at_once",
                    at=after.began_at,
                    detail=f"{after.reservation_id} began on {device} before "
                    f"{before.reservation_id} had ceased",
                )
    held = {(h.device, h.reservation_id): h for h in history.holdings}
    for work in history.works:
        holding = held.get((work.device, work.reservation_id))
        if holding is None or work.began_at < holding.held_at or work.ceased_at > holding.freed_at:
            yield Violation(
                rule="ran_unheld",
                at=work.began_at,
                detail=f"{work.reservation_id} ran on {work.device} from {work.began_at:.3f} to "
                f"{work.ceased_at:.3f}, held {_span(holding)}",
            )


def held_by_one(history: History) -> Iterator[Violation]:
    """The ledger holds a device for one reservation at a time, in its own order of writing."""
    for device, holdings in _by_device(history.holdings).items():
        for before, after in pairwise(sorted(holdings, key=lambda h: h.number)):
            if after.number < before.freed_number:
                yield Violation(
                    rule="held_twice",
                    at=after.held_at,
                    detail=f"{device} held for {after.reservation_id} and {before.reservation_id}",
                )


def epochs_grow(history: History) -> Iterator[Violation]:
    """Every grant has an epoch of its own, larger than those of earlier transactions, and work on
    a device follows that order.
    """
    largest, of_earlier, transaction = 0, 0, -1
    seen: set[int] = set()
    for move in history.rows:
        if not isinstance(move, Moved) or move.after is not ReservationState.GRANTED:
            continue
        epoch = move.epoch or 0
        if move.transaction != transaction:
            transaction, of_earlier = move.transaction, largest
        if epoch <= of_earlier or epoch in seen:
            yield Violation(
                rule="epoch_not_larger",
                at=move.at,
                detail=f"{move.reservation_id} got {epoch} after {of_earlier}",
            )
        seen.add(epoch)
        largest = max(largest, epoch)
    for device, works in _by_device(history.works).items():
        for earlier, later in pairwise(sorted(works, key=lambda work: work.began_at)):
            if later.epoch < earlier.epoch:
                yield Violation(
                    rule="epoch_overtaken",
                    at=later.began_at,
                    detail=f"epoch {later.epoch} ran on {device} after {earlier.epoch}",
                )


def ends_once(history: History) -> Iterator[Violation]:
    """What was accepted is stored, and ends in exactly one terminal state that is told once."""
    told: defaultdict[UUID, dict[UUID, Heard]] = defaultdict(dict)
    for heard in history.heard:
        if _state_told(heard) in ENDS:
            told[heard.reservation_id][heard.message_id] = heard
    for command in {a.command_id: a for a in history.asked if a.what == "request"}.values():
        accepted = any(a.verdict is Verdict.ACCEPTED for a in history.answers[command.command_id])
        if accepted and command.reservation_id not in history.moves:
            yield Violation(
                rule="request_lost",
                at=command.at,
                detail=f"{command.reservation_id} was accepted and is not in the ledger",
            )
    for reservation_id, moves in history.moves.items():
        ends = [move for move in moves if move.after in ENDS and move.before not in ENDS]
        after_end = [move for move in moves if move.before in ENDS]
        if len(ends) != 1 or after_end:
            yield Violation(
                rule="not_one_end",
                at=moves[-1].at,
                detail=f"{reservation_id} went {' -> '.join(move.after for move in moves)}",
            )
            continue
        states = [_state_told(heard) for heard in told[reservation_id].values()]
        if states != [ends[0].after]:
            yield Violation(
                rule="end_told_wrong",
                at=ends[0].at,
                detail=f"{reservation_id} ended {ends[0].after}, told: {states}",
            )


def grants_are_told(history: History) -> Iterator[Violation]:
    """Every grant of the ledger is told with its epoch and devices, and no other is."""
    held: defaultdict[UUID, set[Device]] = defaultdict(set)
    for holding in history.holdings:
        held[holding.reservation_id].add(holding.device)
    granted = {
        move.reservation_id: move
        for moves in history.moves.values()
        for move in moves
        if move.after is ReservationState.GRANTED
    }
    told = [heard for heard in history.heard if _state_told(heard) is ReservationState.GRANTED]
    for heard in told:
        move = granted.get(heard.reservation_id)
        if (
            move is None
            or move.epoch != heard.epoch
            or set(heard.devices) != held[heard.reservation_id]
        ):
            yield Violation(
                rule="grant_not_in_ledger",
                at=heard.at,
                detail=f"{heard.reservation_id} told with epoch {heard.epoch} on {heard.devices}",
            )
    for reservation_id in granted.keys() - {heard.reservation_id for heard in told}:
        yield Violation(
            rule="grant_untold",
            at=granted[reservation_id].at,
            detail=f"{reservation_id} was granted and nobody heard of it",
        )


def events_agree(history: History) -> Iterator[Violation]:
    """An event seen twice is the same event, and no two of a reservation share a revision."""
    seen: dict[UUID, Heard] = {}
    revisions: dict[tuple[UUID, int], Heard] = {}
    for heard in history.heard:
        first = seen.setdefault(heard.message_id, heard)
        if first.digest != heard.digest:
            yield Violation(
                rule="event_changed", at=heard.at, detail=f"{heard.message_id} came with two bodies"
            )
        other = revisions.setdefault((heard.reservation_id, heard.revision), heard)
        if other.message_id != heard.message_id:
            yield Violation(
                rule="revision_twice",
                at=heard.at,
                detail=f"{heard.event} and {other.event} of {heard.reservation_id} both are "
                f"revision {heard.revision}",
            )


def gangs_are_whole(history: History) -> Iterator[Violation]:
    """A grant has the asked number of devices on each of the asked number of nodes."""
    by_reservation: defaultdict[UUID, list[Holding]] = defaultdict(list)
    for holding in history.holdings:
        by_reservation[holding.reservation_id].append(holding)
    for reservation_id, holdings in by_reservation.items():
        request = history.requests.get(reservation_id)
        if request is None:
            continue
        per_node: defaultdict[str, int] = defaultdict(int)
        for holding in holdings:
            per_node[holding.device[0]] += 1
        if sorted(per_node.values()) != [request.gpus] * request.nodes:
            yield Violation(
                rule="not_what_was_asked",
                at=holdings[0].held_at,
                detail=f"{reservation_id} asked {request.gpus} GPUs on {request.nodes} nodes, "
                f"holds {dict(per_node)}",
            )


def leaks_end(history: History) -> Iterator[Violation]:
    """A reservation lives no longer than its lease and 5 s, outages of the ledger left aside."""
    outages = history.of(Outage)
    leases: defaultdict[UUID, list[float]] = defaultdict(list)
    for row in history.rows:
        if isinstance(row, LeaseSet):
            leases[row.reservation_id].append(row.at)
    last = max((record.at for record in history.records), default=0.0)
    for reservation_id, starts in leases.items():
        request = history.requests.get(reservation_id)
        if request is None:
            continue
        due = max(starts) + request.lease_ttl_seconds
        ended_at = min(history.ended_at(reservation_id), last)
        late = ended_at - due - _overlap(outages, due, ended_at)
        if late > LEAK_SECONDS:
            yield Violation(
                rule="leaked",
                at=ended_at,
                detail=f"{reservation_id} lived {late:.1f} s longer than its lease",
            )


def freed_when_stopped(history: History) -> Iterator[Violation]:
    """A device is free again only after its holder, or for a quarantined one its node, said that
    nothing of the reservation runs.
    """
    confirmed: defaultdict[tuple[str, UUID], list[float]] = defaultdict(list)
    for record in history.of(Confirmed):
        confirmed[(record.node_id, record.reservation_id)].append(record.at)
    released: defaultdict[UUID, list[float]] = defaultdict(list)
    for asked in history.asked:
        if asked.what == "release" and asked.stopped:
            released[asked.reservation_id].append(asked.at)
    for holding in history.holdings:
        if holding.freed_at == inf:
            continue
        said = [*confirmed[(holding.device[0], holding.reservation_id)]]
        said += released[holding.reservation_id]
        if not any(at <= holding.freed_at for at in said):
            yield Violation(
                rule="freed_unconfirmed",
                at=holding.freed_at,
                detail=f"{holding.device} of {holding.reservation_id} was freed, nobody had said "
                "that it is stopped",
            )
    for record in history.of(Confirmed):
        for work in history.works:
            same = (work.device[0], work.reservation_id) == (record.node_id, record.reservation_id)
            if same and work.ceased_at > record.at:
                yield Violation(
                    rule="confirmed_while_running",
                    at=record.at,
                    detail=f"{record.node_id} confirmed {record.reservation_id}, which ran on",
                )


def renewals_are_the_holders(history: History) -> Iterator[Violation]:
    """A renewal is accepted only for the grant's own epoch, and not after the grant has ended."""
    epochs = {
        move.reservation_id: move.epoch
        for moves in history.moves.values()
        for move in moves
        if move.after is ReservationState.GRANTED
    }
    first: dict[UUID, Asked] = {}
    for asked in history.asked:
        if asked.what == "renew":
            first.setdefault(asked.command_id, asked)
    for command_id, asked in first.items():
        if not any(a.verdict is Verdict.ACCEPTED for a in history.answers[command_id]):
            continue
        if asked.epoch != epochs.get(asked.reservation_id):
            yield Violation(
                rule="renewed_by_another_epoch",
                at=asked.at,
                detail=f"{asked.reservation_id} renewed with {asked.epoch}, granted "
                f"{epochs.get(asked.reservation_id)}",
            )
        elif asked.at > history.ended_at(asked.reservation_id):
            yield Violation(
                rule="renewed_after_end",
                at=asked.at,
                detail=f"{asked.reservation_id} was renewed after it had ended",
            )


def answers_stay(history: History) -> Iterator[Violation]:
    """The same command gets the same answer, however often it comes."""
    for command_id, answers in history.answers.items():
        final = {
            (a.verdict, a.code)
            for a in answers
            if a.verdict is not Verdict.UNKNOWN and not a.fleeting
        }
        if len(final) > 1:
            yield Violation(
                rule="two_answers",
                at=answers[-1].at,
                detail=f"command {command_id} was answered {sorted(map(str, final))}",
            )


def hosts_hold_out(history: History) -> Iterator[Violation]:
    """What lives on a node never takes more CPU and memory of it than there is."""
    facts = {fact.node_id: fact for fact in history.of(NodeFacts)}
    spans: defaultdict[str, dict[UUID, tuple[float, float]]] = defaultdict(dict)
    for holding in history.holdings:
        until = min(holding.freed_at, history.ended_at(holding.reservation_id))
        spans[holding.device[0]][holding.reservation_id] = (holding.held_at, until)
    for node_id, held in spans.items():
        fact = facts.get(node_id)
        if fact is None:
            continue
        for at in sorted(start for start, _ in held.values()):
            alive = [
                history.requests.get(i) for i, (start, end) in held.items() if start <= at < end
            ]
            cpu = sum(request.cpu_count or 0 for request in alive if request is not None)
            memory_mb = sum(request.host_memory_mb or 0 for request in alive if request is not None)
            if cpu > (fact.cpu_count or inf) or memory_mb > (fact.memory_total_mb or inf):
                yield Violation(
                    rule="host_overcommitted",
                    at=at,
                    detail=f"{node_id}: {cpu:g} CPUs and {memory_mb} MB held",
                )


def decisions_repeat(history: History) -> Iterator[Violation]:
    """What was decided is decided again from what was recorded."""
    for replayed in history.of(Replayed):
        for decision_id in replayed.different:
            yield Violation(
                rule="replayed_otherwise", at=replayed.at, detail=f"decision {decision_id}"
            )


RULES: Final[tuple[Rule, ...]] = (
    one_at_a_time,
    held_by_one,
    epochs_grow,
    ends_once,
    grants_are_told,
    events_agree,
    gangs_are_whole,
    leaks_end,
    freed_when_stopped,
    renewals_are_the_holders,
    answers_stay,
    hosts_hold_out,
    decisions_repeat,
)


OnDevice = TypeVar("OnDevice", Work, Holding)


def _by_device(rows: Iterable[OnDevice]) -> dict[Device, list[OnDevice]]:
    found: defaultdict[Device, list[OnDevice]] = defaultdict(list)
    for row in rows:
        found[row.device].append(row)
    return found


def _overlap(outages: Sequence[Outage], start: float, end: float) -> float:
    """Seconds between `start` and `end` in which nobody could write to the ledger."""
    total, reached = 0.0, start
    for outage in outages:
        began, ended = max(outage.at, reached), min(outage.until, end)
        if ended > began:
            total += ended - began
            reached = ended
    return total


def _state_told(heard: Heard) -> ReservationState | None:
    """The state that an event tells of; None for what is no state."""
    return _STATES.get(heard.event.removeprefix("scheduler.reservation_"))


def _span(holding: Holding | None) -> str:
    if holding is None:
        return "never"
    return f"from {holding.held_at:.3f} to {holding.freed_at:.3f}"
