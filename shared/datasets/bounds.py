"""How much of a dataset is read, and the error for one that is not read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from schemas.errors import ErrorCode
from shared.errors import RefusedError

MEBIBYTE: Final = 2**20
MAX_UNPACKED_BYTES: Final = 4096 * MEBIBYTE
MAX_ROWS: Final = 2_000_000
MAX_ROW_BYTES: Final = 4 * MEBIBYTE  # a line, a record of CSV or a JSON object
MAX_PROMPT_CHARACTERS: Final = 1_000_000
MAX_KEPT_CHARACTERS: Final = 128_000_000  # of all prompts and answers that are kept
FIELD: Final = "$.benchmark.dataset"
TRACE_FIELD: Final = "$.benchmark.trace"


class DatasetRefused(RefusedError):
    """The dataset cannot be used; the text says why."""

    def __init__(self, message: str, field: str = "") -> None:
        path = f"{FIELD}.{field}" if field else FIELD
        super().__init__(ErrorCode.BAD_REQUEST, message, path=path)


@contextmanager
def refusing_trace() -> Iterator[None]:
    """Refuse a file that is read as a trace at that field of the task."""
    try:
        yield
    except DatasetRefused as error:
        error.path = (error.path or FIELD).replace(FIELD, TRACE_FIELD)
        raise
