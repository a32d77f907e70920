"""NVML's functions, called with as little in between as is possible from here.

nvidia-ml-py loads and initialises the library and describes its structures; its wrappers, which
make a new C object per call, are left out where a call repeats every second.
"""

from collections.abc import Callable
from ctypes import Array, Structure, byref, c_uint, c_ulonglong, create_string_buffer, sizeof
from typing import Any, Final

import pynvml

Status = int
Function = Callable[..., Status]
Handle = Any

_LOST: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
_BROKEN: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)


class GpuLostError(Exception):
    """This GPU does not answer; the others may."""


def function(*names: str) -> Function:
    """The first of these that the library has; without any, one that says so when called."""
    for name in names:
        found: Function | None = getattr(pynvml.nvmlLib, name, None)
        if found is not None:
            return found
    return lambda *_: pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


def refused(status: Status) -> None:
    """What a failed call means for its field: nothing is known.

    Raises GpuLostError if the device is gone, NVMLError when NVML as a whole does not work.
    """
    if status in _LOST:
        raise GpuLostError(str(pynvml.NVMLError(status)))
    if status in _BROKEN:
        raise pynvml.NVMLError(status)


def demanded(status: Status) -> None:
    """Raises GpuLostError, and NVMLError for every other failure."""
    if status != pynvml.NVML_SUCCESS:
        refused(status)
        raise pynvml.NVMLError(status)


def number(
    call: Function, handle: Handle, *arguments: int, wide: bool = False
) -> Callable[[], int | None]:
    """Asks for one number, again and again."""
    cell = c_ulonglong() if wide else c_uint()
    where = byref(cell)

    def ask() -> int | None:
        status = call(handle, *arguments, where)
        if status:
            refused(status)
            return None
        return cell.value

    return ask


def numbers(
    call: Function, handle: Handle, count: int, *arguments: int
) -> Callable[[], list[int] | None]:
    """Asks for several numbers that come together, each to its own place."""
    cells = (c_uint * count)()
    places = [byref(cells, place * sizeof(c_uint)) for place in range(count)]

    def ask() -> list[int] | None:
        status = call(handle, *arguments, *places)
        if status:
            refused(status)
            return None
        return cells[:]

    return ask


def text(call: Function, handle: Handle, size: int = 96) -> str | None:
    """Asks for a text once."""
    buffer: Array[Any] = create_string_buffer(size)
    status = call(handle, buffer, c_uint(size))
    if status:
        refused(status)
        return None
    try:
        return buffer.value.decode() or None
    except UnicodeDecodeError:
        return None


def filled(call: Function, handle: Handle, structure: Structure) -> bool:
    """Has a structure filled once; whether it was."""
    status = call(handle, byref(structure))
    if status:
        refused(status)
    return not status
