"""What a change did to the thing that it names, as the audit log keeps it."""

from collections.abc import Mapping
from typing import Any, Final

State = Mapping[str, Any]

# A task's file may hold secrets among its parameters; the task itself has it.
LEFT_OUT: Final = frozenset({"task", "type", "secret"})


def difference(
    before: State | None, after: State | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The fields that differ, as they were and as they are; None where there was nothing."""
    was, now = before or {}, after or {}
    changed = [
        name for name in {**was, **now} if name not in LEFT_OUT and was.get(name) != now.get(name)
    ]
    return (
        None if before is None else {name: was[name] for name in changed if name in was},
        None if after is None else {name: now[name] for name in changed if name in now},
    )
