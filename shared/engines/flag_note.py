"""What a person wants to know of a flag before trying it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlagNote:
    """One line of help, and the default in words: a value, or what decides it."""

    help: str
    default: str
