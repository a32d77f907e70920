"""What a change did to the thing that it names, as the audit log keeps it."""

import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.gateway.endpoint import Endpoint
from services.gateway.domain.access import Identity

State = Mapping[str, Any]

# A task's file may hold secrets among its parameters; the task itself has it.
UNRECORDED_FIELDS: Final = frozenset({"task", "type", "secret"})
# Kept though they do not differ: what people call a thing, and its size.
NAMING: Final = frozenset({"task_name", "holder", "request", "of_namespace"})
# What a request made is named by the address in its answer.
_PLACE: Final = re.compile(r"\{\w+\}")
_MADE: Final = {
    "tasks": "task_id",
    "reservations": "reservation_id",
    "tokens": "token_id",
    "members": "member_id",
    "datasets": "dataset_name",
}


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


def pattern_of(operation: Endpoint[Any]) -> str:
    """Return the regular expression that the paths of an operation match."""
    return f"^{operation.root}{_PLACE.sub('[^/]+', operation.path)}$"


def login_of(identity: Identity) -> str:
    """Return by what a caller was known: where nothing is asked for, by nothing."""
    if identity.provider:
        return identity.provider
    if identity.login_sha256:
        return "browser"
    return "token" if identity.caller else ""


def place_made(location: str) -> dict[str, str]:
    """Return what the address of something new names, as its path's parameters do."""
    *_, sort, value = ("", "", *location.split("/"))
    return {_MADE[sort]: value} if sort in _MADE else {}
