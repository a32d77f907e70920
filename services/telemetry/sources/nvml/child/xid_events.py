"""XIDs as the driver reports them to an event set."""

from ctypes import byref, c_void_p, cast
from typing import Any, Final

import pynvml

from services.telemetry.sources.nvml.child.calls import Handle, find_function, try_call

MAX_AT_ONCE: Final = 64


class XidEvents:
    """One event set. It is polled without waiting, so that no reading is held up by it."""

    def __init__(self) -> None:
        self._set: Any = try_call(pynvml.nvmlEventSetCreate)
        self._wait = find_function("nvmlEventSetWait_v2")
        self._uuids: dict[int | None, str] = {}

    def register(self, uuid: str, handle: Handle) -> None:
        """Receive a GPU's XIDs from now on, if it reports them."""
        address = cast(handle, c_void_p).value
        if self._set is None or self._uuids.get(address) == uuid:
            return
        if try_call(_register, handle, self._set):
            self._uuids[address] = uuid

    def poll(self) -> list[tuple[str, int]]:
        """Device and XID of at most 64 events since the last call; the rest comes with the next."""
        events: list[tuple[str, int]] = []
        if not self._uuids:
            return events
        event = pynvml.c_nvmlEventData_t()
        for _ in range(MAX_AT_ONCE):
            if self._wait(self._set, byref(event), 0):  # a time-out: there is none
                break
            uuid = self._uuids.get(cast(event.device, c_void_p).value)
            if uuid is not None and event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                events.append((uuid, event.eventData))
        return events

    def free(self) -> None:
        """Before NVML is shut down."""
        if self._set is not None:
            try_call(pynvml.nvmlEventSetFree, self._set)
            self._set = None
            self._uuids.clear()


def _register(handle: Handle, event_set: Any) -> bool:
    """True, or raises NVMLError: the function returns nothing."""
    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, event_set)
    return True
