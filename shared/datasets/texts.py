"""What was taken of a dataset, in words."""

from collections.abc import Mapping
from typing import Final

from schemas.task.dataset import DatasetUse, DropReason, LengthUnit

DROPPED: Final[Mapping[DropReason, str]] = {
    DropReason.EMPTY: "without a prompt",
    DropReason.TOO_LARGE: "too large",
    DropReason.DUPLICATE: "duplicates",
    DropReason.TOO_SHORT: "too short",
    DropReason.TOO_LONG: "too long",
    DropReason.NOT_SAMPLED: "not drawn",
}
_UNITS: Final[Mapping[LengthUnit, str]] = {
    LengthUnit.ENGINE_TOKENS: "tokens, counted by the engine",
    LengthUnit.WORDS: "words, as the engine counts no tokens",
}


def dataset_text(use: DatasetUse) -> str:
    """Say which dataset it was, how much of it was used, and why the rest was not."""
    dropped = ", ".join(f"{count} {DROPPED[reason]}" for reason, count in use.dropped.items())
    dropped_text = f" (not used: {dropped})" if dropped else ""
    return (
        f"dataset: {use.used} of {use.rows} rows of {use.format.value}{dropped_text},"
        f" SHA-256 {use.sha256}; lengths in {_UNITS[use.length_unit]}"
    )
