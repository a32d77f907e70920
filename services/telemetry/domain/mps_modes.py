"""Whether the agent starts or stops the MPS daemon of a device."""

from enum import StrEnum

from msgspec import Struct


class MpsAction(StrEnum):
    NONE = "none"
    START = "start"
    STOP = "stop"


class MpsSeen(Struct, frozen=True, kw_only=True):
    """A device and its daemon. `is_ours` is alive and was started by an agent of this node.

    `has_died`: one of ours ran since this agent began, and does not any more. `idle_seconds` is for
    how long nothing has held or used the device; None if something does, or if it is unknown.
    """

    is_wanted: bool
    is_ours: bool
    has_died: bool = False
    is_listening: bool = False
    host_listens: bool = False
    mig_enabled: bool | None = False
    idle_seconds: float | None = None


def mps_action(seen: MpsSeen, settle_seconds: float) -> tuple[MpsAction, str]:
    """What is due, or with NONE why not; the mode of a device changes only while it is empty.

    A daemon is stopped `settle_seconds` after the device became empty: until then the node is
    still known by the label, and a share may be granted by it.
    """
    if seen.is_ours and not _should_run(seen):
        if seen.idle_seconds is None:
            return MpsAction.NONE, "the device is in use, or that is unknown"
        is_due = seen.idle_seconds >= settle_seconds
        return (MpsAction.STOP, "") if is_due else (MpsAction.NONE, "the device was in use")
    if seen.is_ours or not seen.is_wanted:
        is_mute = seen.is_ours and not seen.is_listening
        return MpsAction.NONE, "its daemon does not listen" if is_mute else ""
    if seen.is_listening or seen.host_listens:
        return MpsAction.NONE, "an MPS daemon that is not the agent's listens"
    if seen.mig_enabled is not False:
        return MpsAction.NONE, "the device is divided into MIG instances, or that is unknown"
    if seen.idle_seconds is None and not seen.has_died:
        return MpsAction.NONE, "the device is in use, or that is unknown"
    return MpsAction.START, ""


def _should_run(seen: MpsSeen) -> bool:
    return seen.is_wanted and not seen.mig_enabled
