"""A process that writes a Parquet file as JSON lines, or a Zstandard file unpacked, to its stdout.

`python -m shared.load_files.converter parquet PATH COLUMN...` or `... zst PATH`. It has its own
bound of memory and processor time, since such a file can ask for any. What is wrong with the file
is the last line of stderr.
"""

import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from shared.datasets.bounds import MAX_ROWS, MEBIBYTE
from shared.lifecycle import die_with_parent

MAX_MEMORY_BYTES: Final = 2048 * MEBIBYTE
MAX_PROCESSOR_SECONDS: Final = 600
MAX_GROUP_BYTES: Final = 512 * MEBIBYTE
_BATCH_ROWS: Final = 256
_SHOWN_NAMES: Final = 20
_STATUS_BAD_FILE: Final = 3
STATUS_NO_COLUMN: Final = 4
STDIN_PATH: Final = "/proc/self/fd/0"  # opens what stdin is once more, from its beginning


class _Refused(Exception):  # for the person who gave the file
    status = _STATUS_BAD_FILE


class _NoColumn(_Refused):
    status = STATUS_NO_COLUMN


def write_parquet(path: Path, wanted_names: Sequence[str], target: BinaryIO) -> None:
    """Write the named columns, as far as the file has them. Raises _Refused."""
    from pyarrow import parquet  # of an extra

    with parquet.ParquetFile(path) as file:
        metadata = file.metadata
        if metadata.num_rows > MAX_ROWS:
            raise _Refused(f"expected at most {MAX_ROWS:,} rows, got {metadata.num_rows:,}")
        for number in range(metadata.num_row_groups):
            size = metadata.row_group(number).total_byte_size
            if size > MAX_GROUP_BYTES:
                raise _Refused(
                    f"expected groups of rows of at most {MAX_GROUP_BYTES // MEBIBYTE} MiB, got "
                    f"one of {size // MEBIBYTE}: write the file with smaller ones"
                )
        names = file.schema_arrow.names
        columns = [name for name in wanted_names if name in names]
        if not columns:
            listed = ", ".join(names[:_SHOWN_NAMES])[:500]
            raise _NoColumn(f"expected a column of prompts, it has {listed}: see columns.prompt")
        encoder = msgspec.json.Encoder(enc_hook=str)
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
            lines: list[dict[str, Any]] = batch.to_pylist()
            target.write(b"".join(encoder.encode(line) + b"\n" for line in lines))


def write_unpacked(path: Path, target: BinaryIO) -> None:
    import pyarrow as pa  # of an extra

    with pa.input_stream(str(path), compression="zstd") as stream:
        while piece := stream.read(MEBIBYTE):
            target.write(piece)


def main(arguments: Sequence[str]) -> int:
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_PROCESSOR_SECONDS, MAX_PROCESSOR_SECONDS))
    kind, path, *names = arguments
    status = _STATUS_BAD_FILE
    target = sys.stdout.buffer
    try:
        if kind == "parquet":
            write_parquet(Path(path), names, target)
        else:
            write_unpacked(Path(path), target)
        target.flush()
    except BrokenPipeError:
        return 0
    except MemoryError:
        reason = f"it takes more than {MAX_MEMORY_BYTES // MEBIBYTE} MiB of memory to read"
    except (_Refused, OSError, ValueError) as error:  # pyarrow's own are of the last two
        reason = str(error)
        status = getattr(error, "status", status)
    else:
        return 0
    sys.stderr.write("\n" + " ".join(reason.split())[:1000] + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
