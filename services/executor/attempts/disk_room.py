"""Whether an attempt's files find room."""

import asyncio
import shutil
from pathlib import Path

from schemas.executor.attempts import FailureKind
from services.executor.domain.verdict import AttemptFailed
from services.executor.journal.journal import Journal


async def require_room(journal: Journal, directory: Path) -> None:
    """Raises AttemptFailed where an engine's log would find no room on the disk."""
    await journal.take_disk_reserve()
    if not journal.disk_reserve.is_there():
        usage = await asyncio.to_thread(shutil.disk_usage, directory)
        raise AttemptFailed.of(
            FailureKind.DISK_FULL,
            f"expected room for logs in {directory}, "
            f"{usage.free >> 20} MB of {usage.total >> 20} MB are free",
        )
