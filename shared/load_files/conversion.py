"""Parquet and Zstandard, read by a process that is bounded."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Final

from shared.datasets.bounds import MEBIBYTE, DatasetRefused
from shared.load_files.converter import STATUS_NO_COLUMN, STDIN_PATH
from shared.paths import SOURCE_ROOT

PARQUET: Final = b"PAR1"
ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_NAMES: Final = {PARQUET: "parquet", ZSTANDARD: "zst"}
_TITLES: Final = {PARQUET: "Parquet", ZSTANDARD: "Zstandard"}
_END_SECONDS: Final = 10.0


def is_converted(beginning: bytes) -> bool:
    """True for a file that another process has to read."""
    return beginning[:4] in _NAMES


def convert(path: Path, beginning: bytes, columns: Sequence[str]) -> Iterator[bytes]:
    """Yield Parquet's rows as JSON lines with these columns, or what Zstandard packs.

    Raises DatasetRefused.
    """
    magic = beginning[:4]
    title = _TITLES[magic]
    if find_spec("pyarrow") is None:
        raise DatasetRefused(
            f"expected a file that this host can read, got {title}: install "
            "gpusteward[datasets] there, or convert the file"
        )
    command = [sys.executable, "-m", "shared.load_files.converter", _NAMES[magic], STDIN_PATH]
    with path.open("rb") as source, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*command, *columns],
            cwd=SOURCE_ROOT,
            stdin=source,  # a file without a name is read so, too
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            stdout = process.stdout
            while stdout is not None and (piece := stdout.read(MEBIBYTE)):
                yield piece
            code = process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise DatasetRefused(f"{title} could not be read to its end") from error
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if code:
            field = "columns.prompt" if code == STATUS_NO_COLUMN else ""
            reason = _reason(errors, code)
            raise DatasetRefused(f"expected {title} that can be read: {reason}", field)


def _reason(errors: BinaryIO, code: int) -> str:
    errors.seek(0)
    lines = errors.read(MEBIBYTE).decode(errors="replace").strip().splitlines()
    if code > 0 and lines:
        return lines[-1][:1000]
    return "its reader was ended, as it took too much memory or time"
