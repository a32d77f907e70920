"""XID errors: what each means, what to do about it, and the source of that advice."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from schemas.telemetry.readings import HealthAction, HealthKind
from services.telemetry.domain.faults import Fault

_CATALOG: Final = "NVIDIA, Xid Errors: Xid catalog, immediate action"
_BUCKETS: Final = {
    "IGNORE": HealthAction.IGNORE,
    "RESTART_APP": HealthAction.RESTART_APPLICATION,
    "RESET_GPU": HealthAction.RESET,
    "RESTART_VM": HealthAction.DRAIN,
    "RESTART_BM": HealthAction.DRAIN,
    "CHECK_MECHANICALS": HealthAction.DRAIN,
    "UPDATE_SWFW": HealthAction.DRAIN,
}
# Meanings are ours; which bucket an XID is in is NVIDIA's catalog for Ampere and newer, 2025.
_IN_CATALOG: Final[dict[str, dict[int, str]]] = {
    "IGNORE": {
        14: "an injected test error",
        37: "the firmware got a request that it does not know",
        38: "the firmware's watchdog ran out",
        43: "a faulty application was stopped; the GPU is well",
        44: "an engine failed while it changed contexts",
        63: "a bad row of memory was noted for remapping",
        66: "the driver touched a register that it must not",
        67: "the driver touched a register that it must not",
        92: "many memory errors were corrected",
        93: "the information ROM is protected from wear",
        106: "a test message of the board controller",
        107: "a test message of the board controller",
        108: "an address of another GPU could not be translated",
        121: "errors on the link to the CPU were corrected",
        137: "an illegal access came over NVLink",
        141: "an error in the fast path of CUDA",
        152: "a memory error in the deep learning accelerator",
        153: "the deep learning accelerator took too long",
        157: "a bad resource could not be retired; work may go on",
        160: "a memory channel was retired",
        161: "a memory channel could not be retired",
    },
    "RESTART_APP": {
        8: "an engine stopped working",
        11: "corrupted commands were sent to the GPU",
        13: "an engine fault, mostly an application that reads or writes out of bounds",
        25: "illegal commands were sent to the GPU",
        31: "a page fault on the GPU, mostly an application that uses a wrong address",
        32: "the command stream was corrupted on its way over PCIe",
        60: "a fault in a video or security processor",
        68: "a fault in a video decoder",
        69: "an engine was given a command of another class",
        80: "data for the GPU arrived corrupted",
        86: "a fault in the optical flow engine",
        94: "a memory error hit one application and was contained",
        139: "a fault in the second optical flow engine",
        **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85), "a fault in a copy engine"),
        **dict.fromkeys(range(126, 136), "a fault in a copy engine"),
        **dict.fromkeys((83, 84, 88, 89, 96, 97, 98), "a fault in a video decoder"),
        **dict.fromkeys((82, *range(99, 106)), "a fault in a JPEG decoder"),
    },
    "RESET_GPU": {
        46: "the GPU stopped working",
        62: "the power management controller halted",
        64: "a bad row of memory could not be noted for remapping",
        95: "a memory error may have hit every application",
        109: "an engine did not change contexts in time",
        110: "a security fault, mostly of the hardware",
        119: "the GPU's system processor did not answer in time",
        120: "the GPU's system processor failed",
        136: "an NVLink could not be trained",
        140: "a memory error could not be kept from spreading",
        143: "the GPU could not be initialised",
        155: "an NVLink went down on purpose",
        156: "a bad resource was retired",
        158: "the GPU gave no answer for too long",
    },
    "RESTART_VM": {151: "the keys of confidential computing could not be renewed"},
    "RESTART_BM": {79: "the GPU fell off the bus"},
    "CHECK_MECHANICALS": {54: "the board lacks its auxiliary power"},
    "UPDATE_SWFW": {78: "a virtual GPU could not be started"},
}


class Advice(NamedTuple):
    """`source` names the document, and the words in it, that the action follows from."""

    action: HealthAction
    meaning: str
    source: str


_TEXT: Final = "NVIDIA, Xid Errors: Xid catalog, trigger conditions"
_ADVICE: Final = {
    **{
        xid: Advice(_BUCKETS[bucket], meaning, f"{_CATALOG} {bucket}")
        for bucket, meanings in _IN_CATALOG.items()
        for xid, meaning in meanings.items()
    },
    45: Advice(
        HealthAction.IGNORE,
        "what an application left was cleaned up",
        f"{_TEXT} of Xid 45; k8s-device-plugin, application errors that it skips",
    ),
    48: Advice(
        HealthAction.RESET,
        "a memory error could not be corrected",
        f"{_TEXT} of Xid 48: reset or reboot clears it",
    ),
    74: Advice(
        HealthAction.RESET,
        "an NVLink failed, on this GPU or at its other end",
        f"{_TEXT} of Xid 74: reset or reboot clears it",
    ),
    **dict.fromkeys(
        range(144, 151),
        Advice(
            HealthAction.IGNORE,
            "an NVLink reports an error whose weight is in its sub code",
            f"{_CATALOG} WORKFLOW_NVLINK5_ERR; Xid 154 beside it says what to do",
        ),
    ),
    154: Advice(
        HealthAction.IGNORE,
        "the driver changed its advice for the GPU",
        f"{_CATALOG} XID_154: informational, about another Xid",
    ),
    **dict.fromkeys(
        (171, 172),
        Advice(
            HealthAction.RESET,
            "says which memory an uncorrectable error was in",
            "NVIDIA, Xid Errors: Xid catalog, as Xid 48, which it adds to",
        ),
    ),
}
_RECOVERY: Final = (
    ("node reboot", HealthAction.DRAIN),
    ("gpu reset", HealthAction.RESET),
    ("drain and reset", HealthAction.RESET),
    ("drain p2p", HealthAction.DRAIN),
)
_UNKNOWN_SOURCE: Final = (
    "not in NVIDIA's Xid catalog; k8s-device-plugin takes a device with an unknown Xid for unwell"
)
_RECORD = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})[^)]*\): "
    r"(\d{1,4})\b(?:, *([^\n]*))?"
)
_BUS_ID = re.compile(r"^([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})")
_TEXT_LENGTH: Final = 300


def advice(xid: int, text: str = "") -> Advice:
    """What to do about an XID; `text` is what the kernel logged with it, where that is known."""
    if xid == 154:
        changed_to = text.lower().rpartition(" to ")[2]
        for words, action in _RECOVERY:
            if words in changed_to:
                return Advice(action, _ADVICE[154].meaning, f"{_TEXT} of Xid 154: {words}")
    unknown = Advice(HealthAction.DRAIN, "not in the catalog", _UNKNOWN_SOURCE)
    return _ADVICE.get(xid, unknown)


def xid_fault(uuid: str, xid: int, text: str = "") -> Fault:
    """An XID as the event that it becomes."""
    found = advice(xid, text)
    return Fault(
        device_uuid=uuid,
        change=HealthKind.XID,
        action=found.action,
        action_source=found.source,
        xid=xid,
        detail=f"XID {xid}: {found.meaning}" + (f" ({text})" if text else ""),
    )


class KernelXid(NamedTuple):
    """An XID in the kernel's log; `place` are PCI domain, bus and device."""

    place: tuple[int, int, int]
    xid: int
    text: str

    def device_among(self, bus_ids: Mapping[str, str]) -> str | None:
        """The device at that place, of those with these PCI bus ids."""
        for uuid, bus_id in bus_ids.items():
            if _place(bus_id) == self.place:
                return uuid
        return None


def parse_kernel_record(record: str) -> KernelXid | None:
    """One record of /dev/kmsg, or a line of dmesg; None if it has no XID."""
    found = _RECORD.search(record)
    if found is None:
        return None
    domain, bus, device = (int(found.group(number), 16) for number in (1, 2, 3))
    text = (found.group(5) or "").strip()[:_TEXT_LENGTH]
    return KernelXid((domain, bus, device), int(found.group(4)), text)


def _place(bus_id: str) -> tuple[int, int, int] | None:
    found = _BUS_ID.match(bus_id)
    if found is None:
        return None
    domain, bus, device = (int(part, 16) for part in found.groups())
    return domain, bus, device


class XidOrigin(Enum):
    """Where an XID was received from; both report the same ones."""

    DRIVER = "driver"
    KERNEL_LOG = "kernel_log"


class XidDeduplicator:
    """Recognises an XID that the other origin has reported already.

    Within a window the n-th XID of a number and device is the same event at both origins. Of a
    number that repeats without end only the first 20 in a window count. Seconds are monotonic.
    """

    WINDOW_SECONDS: Final = 10.0
    MAX_PER_WINDOW: Final = 20

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], tuple[float, dict[XidOrigin, int], int]] = {}

    def is_new(self, uuid: str, xid: int, origin: XidOrigin, at_seconds: float) -> bool:
        """Count it; whether the other origin has not reported it."""
        began, counts, reported = self._windows.get((uuid, xid), (at_seconds, {}, 0))
        if at_seconds - began > self.WINDOW_SECONDS:
            began, counts, reported = at_seconds, {}, 0
        count = counts.get(origin, 0) + 1
        new = reported < count <= self.MAX_PER_WINDOW
        counts = counts | {origin: count}
        self._windows[uuid, xid] = (began, counts, max(reported, min(count, self.MAX_PER_WINDOW)))
        return new
