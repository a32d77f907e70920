"""The audit log as a table: who changed what of whose, and how."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from schemas.base import API
from schemas.gateway.tokens import AuditEntry, AuditKind
from schemas.scheduler.reservations import holder_name
from services.cli.display.columns import ELLIPSIS, UNKNOWN, Table
from services.cli.display.output import age, count_text, first_of

CHANGES_SHOWN: Final = 3
MAX_VALUE_CHARACTERS: Final = 40  # `--json` has it whole
# Of a thing that was made: what says what became of it.
_OUTCOMES: Final = ("state",)
# What the column `of` says, and what every change moves.
_HIDDEN_FIELDS: Final = frozenset({"task_name", "holder", "request", "revision"})


def audit_table(entries: Sequence[AuditEntry]) -> Table:
    """Put changes and sign-ins under each other."""
    rows = [
        [
            age(entry.at),
            entry.caller or UNKNOWN,
            entry.login or UNKNOWN,
            entry.address or UNKNOWN,
            action_text(entry),
            object_text(entry),
            difference_text(entry),
            str(entry.status or UNKNOWN),
        ]
        for entry in entries
    ]
    return Table(
        ["age", "who", "by", "from", "what", "of", "change", "status"],
        rows,
        numeric=frozenset({"age", "status"}),
        important=("who", "what", "of", "status", "change"),
        shortened=frozenset({"who", "what", "of"}),
        wrapped=frozenset({"change"}),
    )


def action_text(entry: AuditEntry) -> str:
    """Return what was asked for; of refused sign-ins how many there were, and why."""
    path = entry.path.removeprefix(API)
    match entry.kind:
        case AuditKind.REFUSED:
            return f"refused {entry.count} times: {entry.reason}, {entry.method} {path}"
        case AuditKind.SIGN_IN:
            return f"signed in, {entry.method} {path}"
        case AuditKind.CHANGE:
            return f"{entry.method} {path}"


def object_text(entry: AuditEntry) -> str:
    """Return whose task or reservation it was, with its size; `-` of everything else."""
    state = {**(entry.before or {}), **(entry.after or {})}
    size = _size(state.get("request") or {}) if "holder" in state else ""
    name = state.get("task_name") or holder_name(state.get("holder") or "")
    return ", ".join(filter(None, (name, size))) or UNKNOWN


def difference_text(entry: AuditEntry) -> str:
    """Return the first fields that differ; of what was made or is gone, that it is."""
    old_values, new_values = entry.before, entry.after
    if not old_values and not new_values:
        return UNKNOWN
    if not old_values or not new_values:
        word, state = ("made", new_values or {}) if new_values else ("gone", old_values or {})
        outcome = [str(state[name]) for name in _OUTCOMES if state.get(name)]
        return ", ".join((word, *outcome))
    names = [name for name in {**old_values, **new_values} if name not in _HIDDEN_FIELDS]
    changes = [
        f"{name}: {_value(old_values, name)} to {_value(new_values, name)}" for name in names
    ]
    return first_of(changes, CHANGES_SHOWN) or UNKNOWN


def _value(state: Mapping[str, Any], name: str) -> str:
    value = state.get(name)
    text = "none" if value in (None, "", [], {}) else str(value)
    return (
        text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + ELLIPSIS
    )


def _size(request: Mapping[str, Any]) -> str:
    if request.get("mig_profile"):
        return str(request["mig_profile"])
    for name, unit in (("shares", "of a GPU"), ("vgpu_cores", "cores"), ("share_units", "units")):
        if request.get(name):
            return f"{request[name]} {unit}"
    return count_text(request.get("gpus", 1) * request.get("nodes", 1), "GPU")
