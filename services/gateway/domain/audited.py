"""What a change did to the thing that it names, as the audit log keeps it."""

from collections.abc import Mapping
from typing import Any, Final

from services.gateway.domain.access import Identity

State = Mapping[str, Any]

# A task's file may hold secrets among its parameters; the task itself has it.
UNRECORDED_FIELDS: Final = frozenset({"task", "type", "secret"})
# Kept though they do not differ: what people call a thing, and its size.
NAMING: Final = frozenset({"task_name", "holder", "request", "of_namespace"})
# What a request made is named by the address in its answer.
_MADE: Final = {"tasks": "task_id", "reservations": "reservation_id"}


def difference(
    state_before: State | None, state_after: State | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The fields that differ, as they were and as they are, and those that name the thing; None
    where there was nothing.
    """
    was, now = state_before or {}, state_after or {}
    changed = [
        name
        for name in {**was, **now}
        if name not in UNRECORDED_FIELDS and (name in NAMING or was.get(name) != now.get(name))
    ]
    return (
        None if state_before is None else {name: was[name] for name in changed if name in was},
        None if state_after is None else {name: now[name] for name in changed if name in now},
    )


def login_of(identity: Identity) -> str:
    """Return by what a caller was known: where nothing is asked for, by nothing."""
    if identity.provider:
        return identity.provider
    if identity.login_sha256:
        return "browser"
    return "token" if identity.caller else ""


def place_made(location: str) -> dict[str, str]:
    """Return what the address of a new task or reservation names, as its path's parameters do."""
    *_, sort, value = ("", "", *location.split("/"))
    return {_MADE[sort]: value} if sort in _MADE else {}
