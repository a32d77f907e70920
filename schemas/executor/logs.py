"""The logs of engines: as they pass, and read from a place."""

from typing import ClassVar, Final
from uuid import UUID

from schemas.base import Count, Live, NodeId, PositiveInt, Query, View

MAX_LINES: Final = 10_000  # of a log, in one answer


class AttemptLogged(Live, frozen=True, kw_only=True, tag="executor.attempt_logged"):
    """Lines that an attempt's engine wrote, in order; lines that nothing received are read by
    `ReadLog`.

    `offset` counts the bytes that the engine had written before the first of them. Where it is
    not the `next_offset` of the message before, lines were left out: there were too many.
    """

    speaker_field: ClassVar[str | None] = "executor_id"
    key_field: ClassVar[str | None] = "experiment_id"
    executor_id: NodeId
    experiment_id: UUID
    attempt_id: UUID
    task_id: UUID
    offset: Count
    next_offset: Count
    lines: tuple[str, ...]


class ReadLog(Query, frozen=True, kw_only=True, tag="executor.read_log"):
    """What an attempt's engine wrote. Answered by `LogChunk`; `not_found` if nothing is kept.

    From byte `offset` of all that it ever wrote, or, without, the last `max_lines`.
    """

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    attempt_id: UUID
    offset: Count | None = None
    max_lines: PositiveInt = 200


class LogChunk(View, frozen=True, kw_only=True, tag="executor.log_chunk"):
    """Lines of a log. `offset` is of the first, `next_offset` where to read on.

    `skipped_bytes` were no longer kept, or could not be written, before `offset`. `is_complete`:
    the attempt has ended and nothing follows.
    """

    attempt_id: UUID
    offset: Count
    next_offset: Count
    lines: tuple[str, ...]
    skipped_bytes: Count = 0
    is_complete: bool = False
