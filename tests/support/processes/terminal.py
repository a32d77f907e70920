"""A command as a person sees it: on a terminal of a given width."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Mapping

from tests.support.processes.command_line import start_command

_PARTS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+")
_UP = re.compile(r"\x1b\[(\d*)A")


async def run_in_terminal(
    *arguments: str,
    columns: int,
    environment: Mapping[str, str],
    timeout_seconds: float = 60.0,
) -> tuple[int, str]:
    """Return the exit code of `gpusteward` and what stands on the screen at the end, both streams,
    without colours.

    Raises TimeoutError.
    """
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))
    try:
        process = await start_command(
            *arguments, environment=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
    finally:
        os.close(theirs)
    try:
        async with asyncio.timeout(timeout_seconds):
            written = await asyncio.to_thread(_read_all, terminal)
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(terminal)
    return code, _screen(written.decode(errors="replace"))


def _read_all(terminal: int) -> bytes:
    """Until no process has the other side open, which reads as an error on Linux."""
    parts = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:
        pass
    return b"".join(parts)


def _screen(written: str) -> str:
    """The lines as they stand at the end, after what moves the cursor up, back and erases."""
    lines, row, column = [""], 0, 0
    for part in _PARTS.findall(written):
        if part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part == "\r":
            column = 0
        elif moved := _UP.fullmatch(part):
            row = max(0, row - int(moved[1] or 1))
        elif part.endswith("K") and part.startswith("\x1b"):
            lines[row] = "" if part == "\x1b[2K" else lines[row][:column]
        elif not part.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return "\n".join(line.rstrip() for line in lines).strip("\n")
