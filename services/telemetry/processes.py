"""What /proc tells about a process on a GPU. Nothing readable is None."""

from typing import Final
from uuid import UUID

_MARK: Final = b"GPUSTEWARD_RESERVATION="


def name_of(pid: int) -> str | None:
    """The command's name as the kernel has it, at most 15 characters."""
    text = _read(pid, "comm")
    return text.decode(errors="replace").rstrip("\n") or None if text is not None else None


def reservation_of(pid: int) -> UUID | None:
    """The reservation in the process's environment, where that may be read."""
    for variable in (_read(pid, "environ") or b"").split(b"\0"):
        if variable.startswith(_MARK):
            try:
                return UUID(variable.removeprefix(_MARK).decode())
            except ValueError:
                return None
    return None


def _read(pid: int, what: str) -> bytes | None:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:  # noqa: PTH123  # read every second
            return file.read()
    except OSError:
        return None
