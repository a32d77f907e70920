"""Who sends a command, as far as the bus proves it."""

from typing import Any, Final, TypeVar

from msgspec.structs import replace

from schemas.base import Command
from shared.messaging.permissions import is_signed
from shared.messaging.user_names import SERVICES, BusUser, Role, bus_user

C = TypeVar("C", bound=Command)
_THEIR_OWN: Final = frozenset({*SERVICES, Role.NODE})


def has_our_users(user: str | None) -> bool:
    """Return whether a connection of this name is to a server whose users are made of our table."""
    return _find_user(user or "") is not None


def sign_command(command: C, user: str | None) -> C:
    """Return the command as it is sent by this user, where its owner is told who sends it."""
    if command.sender or user is None or not is_signed(type(command)) or not has_our_users(user):
        return command
    return replace(command, sender=user)


def with_proved_requester(command: C) -> C:
    """Return a command that came to a server with users with the requester that is proved.

    A service and an admin say who it is; of another the name that its file was made for counts, and
    nobody where its subject names no sender.
    """
    claimed: str | None = getattr(command, "requester", None)
    if claimed is None:
        return command
    user = _find_user(command.sender)
    if user is None:
        proved = ""
    elif user.role in SERVICES or user.role is Role.ADMIN:
        proved = claimed or user.person
    else:
        proved = user.person
    changes: dict[str, Any] = {"requester": proved}
    return command if proved == claimed else replace(command, **changes)


def is_of_somebody(command: Command) -> bool:
    """Return whether a command that came to a server with users may be a person's."""
    user = _find_user(command.sender)
    return user is None or user.role not in _THEIR_OWN


def _find_user(name: str) -> BusUser | None:
    try:
        return bus_user(name)
    except ValueError:
        return None
