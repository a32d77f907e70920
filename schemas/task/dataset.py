"""Prompts out of a file in place of made ones, and what was taken of the file."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from schemas.base import Count, PositiveInt, line
from schemas.task.part import TaskPart
from schemas.task.source_file import SourceFile

MAX_SAMPLE = 100_000

Column = Annotated[str, line(min_length=1, max_length=128)]
AnswerTokens = Annotated[int, Meta(ge=1, le=1_000_000)]


class DatasetFormat(StrEnum):
    """How a dataset is written; `auto` follows from its first bytes and its name.

    `sharegpt` and `messages` are conversations, in a JSON array or a line each; `prompts` is a JSON
    object or text a line; `text` a prompt a line.
    """

    AUTO = "auto"
    SHAREGPT = "sharegpt"
    MESSAGES = "messages"
    PROMPTS = "prompts"
    CSV = "csv"
    TEXT = "text"


class DatasetColumns(TaskPart, frozen=True, kw_only=True):
    """Names of columns, or of keys of JSON objects, where they are not the usual ones.

    `answer` is a text whose length is asked for, `output_tokens` that length as a number.
    """

    prompt: Column | None = None
    answer: Column | None = None
    output_tokens: Column | None = None


class DatasetSpec(SourceFile, frozen=True, kw_only=True):
    """A dataset.

    Of its rows those of equal prompts count once if `deduplicate`; those shorter than
    `min_input_tokens` or longer than `max_input_tokens` are dropped; of the rest `sample` are
    drawn, others by another `seed`. An answer is as long as the row's, at most `max_output_tokens`,
    and so long where the row has none.
    """

    format: DatasetFormat = DatasetFormat.AUTO
    columns: DatasetColumns = DatasetColumns()
    deduplicate: bool = False
    min_input_tokens: PositiveInt = 1
    max_input_tokens: PositiveInt | None = None
    max_output_tokens: AnswerTokens = 512
    sample: Annotated[int, Meta(ge=1, le=MAX_SAMPLE)] = 1000
    seed: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_input_tokens is not None and self.max_input_tokens < self.min_input_tokens:
            raise ValueError("expected `max_input_tokens` to be at least `min_input_tokens`")


class LengthUnit(StrEnum):
    """What lengths of prompts were counted in: tokens by the engine that was measured, or words."""

    ENGINE_TOKENS = "engine_tokens"
    WORDS = "words"


class DropReason(StrEnum):
    """Why a row was not used. `too_large`: more than a row may have; `not_sampled`: enough others
    were drawn.
    """

    EMPTY = "empty"
    TOO_LARGE = "too_large"
    DUPLICATE = "duplicate"
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    NOT_SAMPLED = "not_sampled"


class DatasetUse(Struct, frozen=True, kw_only=True):
    """What a benchmark took of its dataset: the file's SHA-256, the `format` that it was read as,
    its rows, those used, and why the rest was not.
    """

    sha256: str
    format: DatasetFormat
    rows: Count
    used: Count
    dropped: dict[DropReason, int] = {}
    length_unit: LengthUnit = LengthUnit.WORDS
    mean_input_tokens: float = 0.0
    mean_output_tokens: float = 0.0
