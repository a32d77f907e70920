"""Reasons in few words for people: gathered by what they say and of whom, never GPU by GPU."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.scheduler.reason_counts import count_of, count_words
from schemas.scheduler.reasons import EXCLUDED_BY_REQUEST, Reason, ReasonCode

LONGEST_DIGEST: Final = 240  # leaves room in a sentence of 300 for the request and its position
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
    messages = dict.fromkeys(each.message for each in reasons)
    if len(messages) <= LISTED_MESSAGES and len(whole := "; ".join(messages)) <= LONGEST_DIGEST:
        return whole
    says_what_there_is = any(
        each.code is ReasonCode.EXCEEDS_LARGEST_NODE and each.node_id is None for each in reasons
    )
    parts = [
        _shortened(_part(code, alike))
        for code, alike in _by_code(_relevant(reasons)).items()
        if not (says_what_there_is and code in EXCLUDED_BY_REQUEST)
    ]
    fitting = parts[:1]
    for part in parts[1:]:
        if len(", ".join([*fitting, part])) > LONGEST_DIGEST:
            break
        fitting.append(part)
    more = len(parts) - len(fitting)
    return ", ".join(fitting) + (f" and {more} more kinds of reasons" if more else "")


def group(reasons: Sequence[Reason]) -> list[ReasonGroup]:
    """Return the reasons gathered by code and sentence, or holder; a few groups of every code.

    Of a device that the request itself excludes nothing else is told.
    """
    groups: list[ReasonGroup] = []
    for code, alike in _by_code(_relevant(reasons)).items():
        by_sentence: dict[str, list[Reason]] = {}
        for reason in alike:
            by_sentence.setdefault(predicate(reason), []).append(reason)
        ordered = sorted(by_sentence.items(), key=lambda item: -len(item[1]))
        most = GROUPS_OF_HOLDERS if code is ReasonCode.HELD else GROUPS_OF_A_CODE
        shown = ordered if len(ordered) <= most else ordered[: most - 1]
        groups += [_group_of(code, its, says) for says, its in shown]
        if rest := ordered[len(shown) :]:
            its = [reason for _, others in rest for reason in others]
            others = _group_of(code, its, "")
            says = f"{count_words(code, others.count)}, for {len(rest)} more causes of this kind"
            groups.append(ReasonGroup(code, others.count, others.node_ids, says))
    return groups


def predicate(reason: Reason) -> str:
    """Return the sentence without its subject, the device or node that the reason is about."""
    if reason.node_id is None:
        return reason.message
    if reason.device_uuid is None:
        return reason.message.removeprefix(f"{reason.node_id} ")
    subject, _, rest = reason.message.partition(f" on {reason.node_id} ")
    if not rest or not subject.startswith("GPU "):
        return reason.message
    return rest.removeprefix(f"({reason.device_uuid}) ")


def _group_of(code: ReasonCode, alike: Sequence[Reason], says: str) -> ReasonGroup:
    nodes = tuple(dict.fromkeys(each.node_id for each in alike if each.node_id is not None))
    count = _count(alike)
    if count == 1:
        says = alike[0].message
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
        code, alike = item
        if code in EXCLUDED_BY_REQUEST:
            return 3, -len(alike)
        if code in _OF_THE_REQUEST or alike[0].node_id is None:
            return 0, -len(alike)
        return (1 if alike[0].device_uuid is not None else 2), -len(alike)

    return dict(sorted(by_code.items(), key=rank))


def _part(code: ReasonCode, alike: Sequence[Reason]) -> str:
    is_of_request = code in _OF_THE_REQUEST or code is ReasonCode.TOO_FEW_NODES
    if is_of_request and len(alike) == 1:
        return alike[0].message
    count = _count(alike)
    where = _where(alike)
    if code is ReasonCode.HELD and (holders := _holders(alike)):
        return f"{count_of(code, count)}{where} held by {holders}"
    return count_words(code, count, where)


def _count(alike: Sequence[Reason]) -> int:
    """Return how many devices, else nodes, they are about; without either how many they are."""
    return len({each.device_uuid or each.node_id or n for n, each in enumerate(alike)})


def _where(alike: Sequence[Reason]) -> str:
    nodes = list(dict.fromkeys(each.node_id for each in alike if each.device_uuid is not None))
    if not nodes or len(nodes) > NAMED_NODES:
        return ""
    return f" on {' and '.join(filter(None, nodes))}"


def _holders(alike: Sequence[Reason]) -> str:
    """Return the one holder with its time, or how many there are and who; empty if unknown."""
    said = [_HELD.fullmatch(predicate(each)) for each in alike]
    holders = list(dict.fromkeys(match[1] for match in said if match is not None))
    if not holders or any(match is None or match[2] for match in said):
        return ""  # shared GPUs name only one of their holders
    if len(holders) == 1:
        return holders[0]
    count = f"{len(holders)} reservations"
    names = list(dict.fromkeys(each.partition(" (")[0] for each in holders))
    if any(each.startswith("reservation ") for each in names):
        return count
    if len(names) == 1:
        return f"{count} of {names[0]}"
    if len(names) > NAMED_HOLDERS:
        names = [*names[: NAMED_HOLDERS - 1], f"{len(names) - NAMED_HOLDERS + 1} more"]
    return f"{count} ({', '.join(names)})"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_DIGEST else f"{text[: LONGEST_DIGEST - 1]}…"
