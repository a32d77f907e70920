"""Calls of NVML: what a failure means for a field, a GPU, and NVML as a whole.

What is asked once goes through nvidia-ml-py's functions, which make C objects for each call. What
a device is asked at every tick goes through `Numbers` and `Entries`, whose memory is made once.
"""

from collections.abc import Callable, Iterable
from ctypes import byref, c_uint, create_string_buffer
from struct import Struct, calcsize
from typing import Any, Final, TypeVar

import pynvml

from shared.errors import StewardError

Handle = Any
Call = tuple[str, *tuple[int | str, ...]]
T = TypeVar("T")

_INSUFFICIENT_SIZE: Final = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
_LEAST_ROOM: Final = 16
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
        _raise_if_general(error.value)
    except UnicodeDecodeError:
        pass
    return None


def raise_if_lost(status: int) -> None:
    """Raises GpuLostError if that is what a call's status says."""
    if status in _LOST:
        raise GpuLostError(str(pynvml.NVMLError(status)))


def _raise_if_general(status: int) -> None:
    """Raises unless only the field of the failed call is unknown."""
    if status in _BROKEN:
        raise pynvml.NVMLError(status)
    raise_if_lost(status)


def find_function(*names: str) -> Callable[..., int]:
    """The first C function that this driver has; without one, what says so when it is called."""
    functions = (getattr(pynvml.nvmlLib, name, None) for name in names)
    return next(filter(None, functions), _no_such_function)


def _no_such_function(*_: object) -> int:
    status: int = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    return status


class Numbers:
    """Functions that give numbers of a device, all of which the driver writes into one memory.

    A call is a function's name and its arguments after the handle: inputs, and for each pointer the
    layout of what the driver writes there, as in `struct`. A Q may be a number of 32 bits, whose
    upper half stays zero: NVIDIA's hosts are little-endian. The memory begins with
    `first_bytes`, which a driver may read before it writes.
    """

    def __init__(self, handle: Handle, calls: Iterable[Call], first_bytes: bytes = b"") -> None:
        calls = list(calls)
        layout = "".join(part for _, *parts in calls for part in parts if isinstance(part, str))
        self._layout = Struct(f"={layout}")
        self._memory = create_string_buffer(first_bytes, self._layout.size)
        self._calls = []
        layout = "="
        for name, *parts in calls:
            arguments, first = [handle], _count(layout)
            for part in parts:
                if isinstance(part, str):
                    arguments.append(byref(self._memory, calcsize(layout)))
                    layout += part
                else:
                    arguments.append(part)
            places = slice(first, _count(layout))
            self._calls.append((find_function(name), tuple(arguments), places))

    def read(self) -> list[Any]:
        """Read the numbers in the order of the calls; fails as `try_call` does."""
        unknown = []
        for function, arguments, places in self._calls:
            if status := function(*arguments):
                _raise_if_general(status)
                unknown.append(places)
        numbers: list[Any] = list(self._layout.unpack(self._memory))
        for places in unknown:
            numbers[places] = [None] * (places.stop - places.start)
        return numbers


def _count(layout: str) -> int:
    return sum(map(layout.count, "?IQ"))


class Entries:
    """A function that fills an array with entries of so many bytes each; the array grows as needed.

    `none_status` is what the function returns where there are none, other than success.
    """

    def __init__(
        self,
        entry_bytes: int,
        function: Callable[..., int],
        *inputs: Any,
        none_status: int = pynvml.NVML_SUCCESS,
    ) -> None:
        self._entry_bytes = entry_bytes
        self._function = function
        self._none_status = none_status
        self._count = c_uint()
        self._arguments = (*inputs, byref(self._count))
        # Without an array the driver says how much there is, or may be.
        self._room = 0
        self._array: Any = None

    def read(self) -> bytes | None:
        """Read the entries; fails as `try_call` does."""
        while True:
            self._count.value = self._room
            status = self._function(*self._arguments, self._array)
            if status == _INSUFFICIENT_SIZE or not (status or self._room):
                # More may come before the next call.
                self._room = max(_LEAST_ROOM, 2 * self._count.value)
                self._array = create_string_buffer(self._room * self._entry_bytes)
            elif not status:
                entries: bytes = self._array[: self._count.value * self._entry_bytes]
                return entries
            elif status == self._none_status:
                return b""
            else:
                _raise_if_general(status)
                return None
