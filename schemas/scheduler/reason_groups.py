"""Reasons in few words for people: gathered by what they say and of whom, never GPU by GPU."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.scheduler.reason_counts import count_of, count_words
from schemas.scheduler.reasons import EXCLUDED_BY_REQUEST, Reason, ReasonCode

MAX_DIGEST: Final = 240  # leaves room in a sentence of 300 for the request and its position
LISTED_MESSAGES: Final = 2
NAMED_NODES: Final = 2
NAMED_HOLDERS: Final = 3
GROUPS_OF_HOLDERS: Final = 10
GROUPS_OF_A_CODE: Final = 3

# What the whole request runs into; the sentence says it better than a count.
_OF_THE_REQUEST: Final = frozenset(
    {
        ReasonCode.NO_GPUS,
        ReasonCode.EXCEEDS_LARGEST_NODE,
        ReasonCode.EXCEEDS_QUOTA,
        ReasonCode.OVER_QUOTA,
        ReasonCode.AWAITING_CLUSTER,
        ReasonCode.ENDED,
    }
)
_OF_A_NODES_DEVICES: Final = frozenset(
    {ReasonCode.TOO_FEW_DEVICES, ReasonCode.INSUFFICIENT_SHARES, ReasonCode.SHARES_FRAGMENTED}
)
_HELD: Final = re.compile(r"is held by (.+?)( and \d+ more)?")


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Reasons of one code that say the same. `says` has "each" for its subject if it is several."""

    code: ReasonCode
    count: int
    node_ids: tuple[str, ...]
    says: str


def digest(reasons: Sequence[Reason]) -> str:
    """Return one clause that counts the reasons by code and names the holders that are few.

    What the whole request runs into comes first, what the request itself excludes last.
    """
    messages = dict.fromkeys(reason.message for reason in reasons)
    if (
        len(messages) <= LISTED_MESSAGES
        and len(joined_messages := "; ".join(messages)) <= MAX_DIGEST
    ):
        return joined_messages
    says_what_there_is = any(
        reason.code is ReasonCode.EXCEEDS_LARGEST_NODE and reason.node_id is None
        for reason in reasons
    )
    parts = [
        _shorten(_part(code, same_code))
        for code, same_code in _by_code(_relevant(reasons)).items()
        if not (says_what_there_is and code in EXCLUDED_BY_REQUEST)
    ]
    fitting = parts[:1]
    for part in parts[1:]:
        if len(", ".join([*fitting, part])) > MAX_DIGEST:
            break
        fitting.append(part)
    more = len(parts) - len(fitting)
    return ", ".join(fitting) + (f" and {more} more kinds of reasons" if more else "")


def group(reasons: Sequence[Reason]) -> list[ReasonGroup]:
    """Return the reasons gathered by code and sentence, or holder; a few groups of every code.

    Of a device that the request itself excludes nothing else is told.
    """
    groups: list[ReasonGroup] = []
    for code, same_code in _by_code(_relevant(reasons)).items():
        by_sentence: dict[str, list[Reason]] = {}
        for reason in same_code:
            by_sentence.setdefault(predicate(reason), []).append(reason)
        ordered = sorted(by_sentence.items(), key=lambda item: -len(item[1]))
        most = GROUPS_OF_HOLDERS if code is ReasonCode.HELD else GROUPS_OF_A_CODE
        listed_groups = ordered if len(ordered) <= most else ordered[: most - 1]
        groups += [_group_of(code, its, says) for says, its in listed_groups]
        if folded := ordered[len(listed_groups) :]:
            its = [reason for _, folded_reasons in folded for reason in folded_reasons]
            combined = _group_of(code, its, "")
            says = (
                f"{count_words(code, combined.count)}, for {len(folded)} more causes of this kind"
            )
            groups.append(ReasonGroup(code, combined.count, combined.node_ids, says))
    return groups


def predicate(reason: Reason) -> str:
    """Return the sentence without its subject, the device or node that the reason is about."""
    if reason.node_id is None:
        return reason.message
    if reason.device_uuid is None:
        return reason.message.removeprefix(f"{reason.node_id} ")
    subject, _, tail = reason.message.partition(f" on {reason.node_id} ")
    if not tail or not subject.startswith("GPU "):
        return reason.message
    return tail.removeprefix(f"({reason.device_uuid}) ")


def _group_of(code: ReasonCode, reasons: Sequence[Reason], says: str) -> ReasonGroup:
    nodes = tuple(dict.fromkeys(reason.node_id for reason in reasons if reason.node_id is not None))
    count = _count(reasons)
    if count == 1:
        says = reasons[0].message
    elif says and nodes:
        says = f"each {says}"
    return ReasonGroup(code, count, nodes, says)


def _relevant(reasons: Sequence[Reason]) -> list[Reason]:
    """Leave out what else keeps a device or a node that the request itself excludes."""
    excluded: dict[str, Reason] = {}
    for reason in reasons:
        if reason.code in EXCLUDED_BY_REQUEST and reason.device_uuid is not None:
            excluded.setdefault(reason.device_uuid, reason)
    of_excluded = {reason.node_id for reason in excluded.values()}
    of_others = {r.node_id for r in reasons if r.device_uuid and r.device_uuid not in excluded}
    closed = of_excluded - of_others

    def matters(reason: Reason) -> bool:
        if reason.device_uuid is None:
            return reason.node_id not in closed or reason.code not in _OF_A_NODES_DEVICES
        return excluded.get(reason.device_uuid, reason) is reason

    return [reason for reason in reasons if matters(reason)]


def _by_code(reasons: Iterable[Reason]) -> Mapping[ReasonCode, list[Reason]]:
    by_code: dict[ReasonCode, list[Reason]] = {}
    for reason in reasons:
        by_code.setdefault(reason.code, []).append(reason)

    def rank(item: tuple[ReasonCode, list[Reason]]) -> tuple[int, int]:
        code, group_reasons = item
        if code in EXCLUDED_BY_REQUEST:
            return 3, -len(group_reasons)
        if code in _OF_THE_REQUEST or group_reasons[0].node_id is None:
            return 0, -len(group_reasons)
        return (1 if group_reasons[0].device_uuid is not None else 2), -len(group_reasons)

    return dict(sorted(by_code.items(), key=rank))


def _part(code: ReasonCode, reasons: Sequence[Reason]) -> str:
    is_of_request = code in _OF_THE_REQUEST or code is ReasonCode.TOO_FEW_NODES
    if is_of_request and len(reasons) == 1:
        return reasons[0].message
    count = _count(reasons)
    where = _where(reasons)
    if code is ReasonCode.HELD and (holders := _holders(reasons)):
        return f"{count_of(code, count)}{where} held by {holders}"
    return count_words(code, count, where)


def _count(reasons: Sequence[Reason]) -> int:
    """Return how many devices, else nodes, they are about; without either how many they are."""
    return len({reason.device_uuid or reason.node_id or n for n, reason in enumerate(reasons)})


def _where(reasons: Sequence[Reason]) -> str:
    nodes = list(
        dict.fromkeys(reason.node_id for reason in reasons if reason.device_uuid is not None)
    )
    if not nodes or len(nodes) > NAMED_NODES:
        return ""
    return f" on {' and '.join(filter(None, nodes))}"


def _holders(reasons: Sequence[Reason]) -> str:
    """Return the one holder with its time, or how many there are and who; empty if unknown."""
    matches = [_HELD.fullmatch(predicate(reason)) for reason in reasons]
    holders = list(dict.fromkeys(match[1] for match in matches if match is not None))
    if not holders or any(match is None or match[2] for match in matches):
        return ""  # shared GPUs name only one of their holders
    if len(holders) == 1:
        return holders[0]
    count = f"{len(holders)} reservations"
    names = list(dict.fromkeys(holder.partition(" (")[0] for holder in holders))
    if any(name.startswith("reservation ") for name in names):
        return count
    if len(names) == 1:
        return f"{count} of {names[0]}"
    if len(names) > NAMED_HOLDERS:
        names = [*names[: NAMED_HOLDERS - 1], f"{len(names) - NAMED_HOLDERS + 1} more"]
    return f"{count} ({', '.join(names)})"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_DIGEST else f"{text[: MAX_DIGEST - 1]}…"
