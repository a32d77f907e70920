"""Calls of NVML: what a failure means for a field, a GPU, and NVML as a whole.

Nearly all go through nvidia-ml-py's functions, which make a C object per call. Where a device is
asked for many single numbers at every tick, `Numbers` calls the library itself.
"""

from collections.abc import Callable, Iterable
from ctypes import byref, c_ulonglong
from typing import Any, Final, TypeVar

import pynvml

from shared.errors import StewardError

Handle = Any
T = TypeVar("T")

_LOST: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
_BROKEN: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)


class GpuLostError(StewardError):
    """This GPU does not answer; the others may."""


def try_call(call: Callable[..., T], *arguments: Any) -> T | None:
    """The result of a call; None where NVML does not give it, or this driver has no such function.

    Raises GpuLostError if the device is gone, NVMLError when NVML as a whole does not work.
    """
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        _raise_if_general(error)
    except UnicodeDecodeError:
        pass
    return None


def raise_if_lost(error: pynvml.NVMLError) -> None:
    """Raises GpuLostError if that is what the error says."""
    if error.value in _LOST:
        raise GpuLostError(str(error)) from error


def _raise_if_general(error: pynvml.NVMLError) -> None:
    """Raises unless only the field of the failed call is unknown."""
    if error.value in _BROKEN:
        raise error
    raise_if_lost(error)


def library_function(name: str) -> Callable[..., int]:
    """The C function; one that this driver does not have says so when it is called."""
    function: Callable[..., int] = getattr(pynvml.nvmlLib, name, _no_such_function)
    return function


def _no_such_function(*_: object) -> int:
    status: int = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    return status


class Numbers:
    """Functions that give one number of a device each, called with cells that are made once."""

    def __init__(self, handle: Handle, calls: Iterable[tuple[str, *tuple[int, ...]]]) -> None:
        self._calls = []
        for name, *arguments in calls:
            # A number of 32 bits leaves the upper half at zero: NVIDIA's hosts are little-endian.
            cell = c_ulonglong()
            self._calls.append((library_function(name), (handle, *arguments, byref(cell)), cell))

    def read(self) -> list[int | None]:
        """Read the numbers in the order of the calls; fails as `try_call` does."""
        numbers: list[int | None] = []
        for function, arguments, cell in self._calls:
            status = function(*arguments)
            if status:
                _raise_if_general(pynvml.NVMLError(status))
            numbers.append(None if status else cell.value)
        return numbers
