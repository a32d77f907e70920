"""Has a process say what an uploaded file holds; see `inspection`, which it runs."""

import sys
from typing import BinaryIO, Final

import msgspec

from schemas.gateway.datasets import DatasetContents
from shared.datasets.bounds import DatasetRefused
from shared.processes.command import run_command

DEADLINE_SECONDS: Final = 900.0
STATUS_REFUSED: Final = 3


async def inspect_file(file: BinaryIO, name: str) -> DatasetContents:
    """Say what a file holds, in a process of its own. Raises DatasetRefused."""
    output = await run_command(
        [sys.executable, "-m", "shared.load_files.inspection", name],
        deadline_seconds=DEADLINE_SECONDS,
        stdin=file,
    )
    if output.exit_code == 0:
        return msgspec.json.decode(output.stdout, type=DatasetContents)
    lines = output.stderr.strip().splitlines()
    if output.exit_code == STATUS_REFUSED and lines:
        raise DatasetRefused(lines[-1], "upload")
    raise DatasetRefused("its reader was ended, as it took too much memory or time", "upload")
