"""A small file that outlives the agent, on disk before what it records is done."""

import asyncio
from pathlib import Path

from shared.paths import make_directory, write_atomically


async def replace_journal(path: Path, content: bytes) -> None:
    """Raises OSError."""
    await asyncio.to_thread(_write, path, content)


def _write(path: Path, content: bytes) -> None:
    make_directory(path.parent, 0o700)
    write_atomically(path, content, is_durable=True)
