"""The lines of a trace in Mooncake's form, checked one by one."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from msgspec import DecodeError, Meta, Struct, json

from shared.datasets.bounds import MAX_ROWS, DatasetRefused
from shared.datasets.pieces import split_lines

MAX_TOKENS: Final = 2_000_000
MAX_MILLISECONDS: Final = 1e11  # three years
_MAX_ID: Final = 2**63 - 1

Milliseconds = Annotated[float, Meta(ge=0, le=MAX_MILLISECONDS)]
BlockId = Annotated[int, Meta(ge=-(2**63), le=_MAX_ID)]


class TraceLine(Struct, frozen=True, kw_only=True):
    """A request. With a `session_id` it is the next turn of that, `delay` after the answer before
    it; its `input_length` is then of what it adds. Times are in milliseconds.
    """

    input_length: Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
    output_length: Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
    timestamp: Milliseconds | None = None
    delay: Milliseconds | None = None
    hash_ids: tuple[BlockId, ...] = ()
    session_id: str | int | None = None


def read_lines(texts: Iterable[str], block_tokens: int) -> Iterator[TraceLine]:
    """Yield the requests of a trace in their order.

    Raises DatasetRefused for a line that is none, for times that fall, and for too many lines.
    """
    decoder = json.Decoder(TraceLine)
    latest = -1.0
    number = 0
    for number, text in enumerate(split_lines(texts), start=1):
        if number > MAX_ROWS:
            raise DatasetRefused(f"expected at most {MAX_ROWS:,} lines in a trace, got more")
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except (DecodeError, RecursionError) as error:
            raise DatasetRefused(
                f"expected a request of a trace in line {number}, such as "
                '{"timestamp": 27482, "input_length": 6955, "output_length": 52, '
                f'"hash_ids": [46, 47]}}: {error}'
            ) from error
        if line.timestamp is not None:
            if line.timestamp < latest:
                raise DatasetRefused(
                    f"expected lines in order of time, line {number} is of {line.timestamp:g} ms "
                    f"after one of {latest:g} ms: sort the trace by its timestamp"
                )
            latest = line.timestamp
        most = -(-line.input_length // block_tokens)
        if len(line.hash_ids) > most:
            raise DatasetRefused(
                f"expected at most {most} hash_ids in line {number}, whose {line.input_length} "
                f"tokens are so many blocks of {block_tokens}, got {len(line.hash_ids)}: see "
                "block_tokens",
                "block_tokens",
            )
        yield line
