"""XIDs as the driver tells them to whoever registered for them."""

from ctypes import byref, c_uint, c_void_p, cast
from typing import Final

import pynvml

from services.telemetry.nvml_library import Handle, function, refused

MAX_AT_ONCE: Final = 64


class XidEvents:
    """One event set. It is asked without waiting, so that no reading is held up by it."""

    def __init__(self) -> None:
        self._set = pynvml.c_nvmlEventSet_t()
        self._exists = not function("nvmlEventSetCreate")(byref(self._set))
        self._wait = function("nvmlEventSetWait_v2", "nvmlEventSetWait")
        self._event = pynvml.c_nvmlEventData_t()
        self._event_at = byref(self._event)
        self._uuids: dict[int | None, str] = {}

    def register(self, uuid: str, handle: Handle) -> None:
        """Listen to a GPU from now on, if it tells of XIDs."""
        address = cast(handle, c_void_p).value
        if not self._exists or self._uuids.get(address) == uuid:
            return
        status = function("nvmlDeviceRegisterEvents")(
            handle, pynvml.c_ulonglong(pynvml.nvmlEventTypeXidCriticalError), self._set
        )
        if status:
            refused(status)
        else:
            self._uuids[address] = uuid

    def heard(self) -> list[tuple[str, int]]:
        """Device and XID of what happened since the last call; the rest is heard at the next."""
        found: list[tuple[str, int]] = []
        if not self._uuids:
            return found
        for _ in range(MAX_AT_ONCE):
            if self._wait(self._set, self._event_at, c_uint(0)):
                break
            uuid = self._uuids.get(cast(self._event.device, c_void_p).value)
            is_xid = self._event.eventType == pynvml.nvmlEventTypeXidCriticalError
            if uuid is not None and is_xid:
                found.append((uuid, self._event.eventData))
        return found

    def free(self) -> None:
        """Before NVML is shut down."""
        if self._exists:
            function("nvmlEventSetFree")(self._set)
            self._exists = False
            self._uuids.clear()
