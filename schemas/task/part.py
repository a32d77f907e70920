"""What all blocks of a task file have in common."""

from msgspec import Struct


class TaskPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of every block of a task file: a misspelt name is an error, never ignored."""
