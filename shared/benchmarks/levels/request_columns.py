"""A level's requests as compressed columns, and back."""

import zlib
from collections.abc import Iterable, Sequence
from struct import pack, unpack
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkResult, LevelResult, RequestColumns
from shared.errors import StewardError

# An attempt's requests have to fit into one message beside its levels: about 8 bytes for each.
MAX_REQUESTS: Final = 20_000

_LARGEST: Final = 2**32 - 2
_UNKNOWN: Final = 2**32 - 1
_MICROSECONDS: Final = 1_000_000
_WIDTH: Final = 4  # bytes of each value
_COLUMNS: Final = 5
_COLUMNS_OF_TURNS: Final = 6
_COLUMNS_OF_PIECES: Final = 7


class RequestRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A request that ended. One with an `error` took `e2e_latency` to fail, if that is known."""

    ttft: float | None = None
    e2e_latency: float | None = None
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None
    error: str | None = None
    turn: int | None = None
    num_first_tokens: int = 1


class DamagedColumns(StewardError):
    """These are not columns of that many requests."""


def pack_requests(rows: Sequence[RequestRow], one_in: int = 1) -> RequestColumns:
    """Times to the microsecond."""
    codes = tuple(sorted({row.error for row in rows if row.error is not None}))
    numbers = {code: number for number, code in enumerate(codes)}
    columns = [
        [_microseconds(row.ttft) for row in rows],
        [_microseconds(row.e2e_latency) for row in rows],
        [_whole(row.num_input_tokens) for row in rows],
        [_whole(row.num_output_tokens) for row in rows],
        [_whole(numbers.get(row.error) if row.error is not None else None) for row in rows],
    ]
    has_pieces = any(row.num_first_tokens > 1 for row in rows)
    if has_pieces or any(row.turn is not None for row in rows):
        columns.append([_whole(row.turn) for row in rows])
    if has_pieces:
        columns.append([_whole(row.num_first_tokens) for row in rows])
    return RequestColumns(
        count=len(rows),
        packed=zlib.compress(b"".join(map(_planes, columns))),
        error_codes=codes,
        one_in=one_in,
    )


def unpack_requests(columns: RequestColumns) -> list[RequestRow]:
    """Raises DamagedColumns."""
    count, codes = columns.count, columns.error_codes
    width = _WIDTH * count
    try:
        inflater = zlib.decompressobj()
        raw = inflater.decompress(columns.packed, _COLUMNS_OF_PIECES * width + 1)
        sizes = [count * width for count in range(_COLUMNS, _COLUMNS_OF_PIECES + 1)]
        if len(raw) not in sizes or not inflater.eof:
            raise DamagedColumns(
                f"expected {_COLUMNS} to {_COLUMNS_OF_PIECES} columns of {count} requests, found "
                f"{len(raw)} bytes or more"
            )
        values = [_values(raw[at : at + width]) for at in range(0, len(raw), width or 1)]
        values += [(_UNKNOWN,) * count] * (_COLUMNS_OF_TURNS - len(values))
        values += [(1,) * count] * (_COLUMNS_OF_PIECES - len(values))
        return [
            RequestRow(
                ttft=ttft / _MICROSECONDS if ttft != _UNKNOWN else None,
                e2e_latency=e2e / _MICROSECONDS if e2e != _UNKNOWN else None,
                num_input_tokens=tokens_in if tokens_in != _UNKNOWN else None,
                num_output_tokens=tokens_out if tokens_out != _UNKNOWN else None,
                error=codes[error] if error != _UNKNOWN else None,
                turn=turn if turn != _UNKNOWN else None,
                num_first_tokens=first_tokens,
            )
            for ttft, e2e, tokens_in, tokens_out, error, turn, first_tokens in zip(
                *values, strict=True
            )
        ]
    except (zlib.error, IndexError) as error:
        raise DamagedColumns(f"expected columns of {count} requests: {error}") from error


def thin_requests(
    levels: Iterable[LevelResult], most: int = MAX_REQUESTS
) -> tuple[LevelResult, ...]:
    """Thin requests evenly over each level, to at most `most` together; keep the first of each
    level.
    """
    results = tuple(levels)
    total = sum(level.requests.count for level in results if level.requests is not None)
    if total <= most:
        return results
    one_in = -(-total // max(1, most - len(results)))
    return tuple(
        level
        if level.requests is None
        else msgspec.structs.replace(
            level,
            requests=pack_requests(
                unpack_requests(level.requests)[::one_in], one_in * level.requests.one_in
            ),
        )
        for level in results
    )


def without_requests(result: BenchmarkResult) -> BenchmarkResult:
    """Return the result as views show it, without single requests."""
    levels = (msgspec.structs.replace(level, requests=None) for level in result.levels)
    return msgspec.structs.replace(result, levels=tuple(levels))


def _microseconds(seconds: float | None) -> int:
    return _whole(None if seconds is None else round(seconds * _MICROSECONDS))


def _whole(value: int | None) -> int:
    return _UNKNOWN if value is None else min(max(value, 0), _LARGEST)


def _planes(values: Sequence[int]) -> bytes:
    """Return all first bytes, then all second ones and so on: high bytes are alike, and
    compress.
    """
    raw = pack(f"<{len(values)}I", *values)
    return b"".join(raw[place::_WIDTH] for place in range(_WIDTH))


def _values(planes: bytes) -> tuple[int, ...]:
    count = len(planes) // _WIDTH
    raw = bytearray(len(planes))
    for place in range(_WIDTH):
        raw[place::_WIDTH] = planes[place * count : (place + 1) * count]
    return unpack(f"<{count}I", raw)
