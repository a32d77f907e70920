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
_NVLINK5: Final = frozenset(range(144, 151))
_NVLINK5_SOURCE: Final = f"{_CATALOG} WORKFLOW_NVLINK5_ERR: by the severity in its text"
_NVLINK5_ADVICE: Final = {
    True: Advice(HealthAction.RESET, "a fatal error of an NVLink", _NVLINK5_SOURCE),
    False: Advice(HealthAction.IGNORE, "an error of an NVLink that is not fatal", _NVLINK5_SOURCE),
    None: Advice(
        HealthAction.DRAIN,
        "an error of an NVLink; whether it is fatal stands in the kernel's log alone, which this "
        "agent cannot read",
        "k8s-device-plugin, which takes a device with such an Xid for unwell",
    ),
}
_SXID_SOURCE: Final = (
    "NVIDIA Fabric Manager User Guide, fatal NVSwitch SXid errors: reset all GPUs and NVSwitches"
)
_RECOVERY: Final = (
    ("node reboot", HealthAction.DRAIN),
    ("gpu reset", HealthAction.RESET),
    ("drain and reset", HealthAction.RESET),
    ("drain p2p", HealthAction.DRAIN),
)
_UNKNOWN_SOURCE: Final = (
    "not in NVIDIA's Xid catalog; k8s-device-plugin takes a device with an unknown Xid for unwell"
)
_PLACE: Final = r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})"
_RECORD = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PLACE}[^)]*\): (\d{{1,4}})\b(?:, *([^\n]*))?")
_OFF_THE_BUS = re.compile(
    rf"NVRM: .{{0,40}}?\bGPU {_PLACE}\b.{{0,200}}?fallen off the bus", re.DOTALL
)
_SXID = re.compile(
    rf"nvidia-nvswitch\d+: SXid \(PCI:{_PLACE}[^)]*\): (\d{{1,6}}), (Fatal, *[^\n]*)", re.IGNORECASE
)
_SEVERITY = re.compile(r"\b(non-?fatal|fatal)\b", re.IGNORECASE)
_BUS_ID = re.compile(_PLACE)
_TEXT_LENGTH: Final = 300


def advice(xid: int, text: str = "") -> Advice:
    """Return what to do about an XID; `text` is what the kernel logged with it, where that is
    known.
    """
    if xid == 154:
        changed_to = text.lower().rpartition(" to ")[2]
        for words, action in _RECOVERY:
            if words in changed_to:
                return Advice(action, _ADVICE[154].meaning, f"{_TEXT} of Xid 154: {words}")
    if xid in _NVLINK5:
        severity = _SEVERITY.search(text)
        return _NVLINK5_ADVICE[severity and severity[1].lower() == "fatal"]
    unknown = Advice(HealthAction.DRAIN, "not in the catalog", _UNKNOWN_SOURCE)
    return _ADVICE.get(xid, unknown)


def xid_fault(uuid: str, xid: int, text: str = "") -> Fault:
    """An XID as the event that it becomes."""
    action = advice(xid, text)
    return Fault(
        device_uuid=uuid,
        change=HealthKind.XID,
        action=action.action,
        action_source=action.source,
        xid=xid,
        detail=f"XID {xid}: {action.meaning}" + (f" ({text})" if text else ""),
    )


class XidOrigin(Enum):
    """Where an XID was received from; all report the same ones."""

    DRIVER = "driver"
    KERNEL_LOG = "kernel_log"
    KERNEL_TEXT = "kernel_text"  # a record that tells it in words, without its number


class KernelXid(NamedTuple):
    """An XID in the kernel's log; `place` are PCI domain, bus and device."""

    place: tuple[int, int, int]
    xid: int
    text: str
    origin: XidOrigin = XidOrigin.KERNEL_LOG

    def device_among(self, bus_ids: Mapping[str, str]) -> str | None:
        """The device at that place, of those with these PCI bus ids."""
        for uuid, bus_id in bus_ids.items():
            if _place(bus_id) == self.place:
                return uuid
        return None


class KernelSxid(NamedTuple):
    """A fatal error of an NVSwitch in the kernel's log; `place` is the switch."""

    place: tuple[int, int, int]
    sxid: int
    text: str

    def fault(self, uuid: str) -> Fault:
        """Return what it is for a GPU of the host: a switch connects all of them."""
        switch = "{:04x}:{:02x}:{:02x}".format(*self.place)
        return Fault(
            device_uuid=uuid,
            change=HealthKind.SXID,
            action=HealthAction.RESET,
            action_source=_SXID_SOURCE,
            detail=f"SXid {self.sxid} of the NVSwitch at {switch}: {self.text}",
        )


def parse_kernel_record(record: str) -> KernelXid | KernelSxid | None:
    """Read one record of /dev/kmsg, or a line of dmesg; None if it reports no error of a GPU.

    A GPU that fell off the bus is XID 79, also where the driver names no number. Of an NVSwitch
    only fatal errors are read.
    """
    if (match := _RECORD.search(record)) is not None:
        text = (match[5] or "").strip()[:_TEXT_LENGTH]
        return KernelXid(_numbers(match), int(match[4]), text)
    if (match := _OFF_THE_BUS.search(record)) is not None:
        return KernelXid(_numbers(match), 79, "GPU has fallen off the bus", XidOrigin.KERNEL_TEXT)
    if (match := _SXID.search(record)) is not None:
        return KernelSxid(_numbers(match), int(match[4]), match[5].strip()[:_TEXT_LENGTH])
    return None


def _numbers(match: re.Match[str]) -> tuple[int, int, int]:
    return int(match[1], 16), int(match[2], 16), int(match[3], 16)


def _place(bus_id: str) -> tuple[int, int, int] | None:
    match = _BUS_ID.match(bus_id)
    return None if match is None else _numbers(match)


class XidDeduplicator:
    """Recognises an XID that another origin has reported already.

    Within a window the n-th XID of a number and device is the same event at all origins. Of a
    number that repeats without end only the first 20 in a window count. Seconds are monotonic.
    """

    WINDOW_SECONDS: Final = 10.0
    MAX_PER_WINDOW: Final = 20

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], tuple[float, dict[XidOrigin, int], int]] = {}

    def is_new(self, uuid: str, xid: int, origin: XidOrigin, at_seconds: float) -> bool:
        """Count it, and return whether no other origin has reported it."""
        started, counts, reported = self._windows.get((uuid, xid), (at_seconds, {}, 0))
        if at_seconds - started > self.WINDOW_SECONDS:
            started, counts, reported = at_seconds, {}, 0
        count = counts.get(origin, 0) + 1
        new = reported < count <= self.MAX_PER_WINDOW
        counts = counts | {origin: count}
        self._windows[uuid, xid] = (started, counts, max(reported, min(count, self.MAX_PER_WINDOW)))
        return new
