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


def mps_action(state: MpsSeen, settle_seconds: float) -> tuple[MpsAction, str]:
    """Return the due action, or NONE and why; the mode of a device changes only while it is empty.

    A daemon is stopped `settle_seconds` after the device became empty: until then the node is still
    known by the label, and a share may be granted by it.
    """
    if state.is_ours and not _should_run(state):
        if state.idle_seconds is None:
            return MpsAction.NONE, "the device is in use, or that is unknown"
        is_due = state.idle_seconds >= settle_seconds
        return (MpsAction.STOP, "") if is_due else (MpsAction.NONE, "the device was in use")
    if state.is_ours or not state.is_wanted:
        is_mute = state.is_ours and not state.is_listening
        return MpsAction.NONE, "its daemon does not listen" if is_mute else ""
    if state.is_listening or state.host_listens:
        return MpsAction.NONE, "an MPS daemon that is not the agent's listens"
    if state.mig_enabled is not False:
        return MpsAction.NONE, "the device is divided into MIG instances, or that is unknown"
    if state.idle_seconds is None and not state.has_died:
        return MpsAction.NONE, "the device is in use, or that is unknown"
    return MpsAction.START, ""


def _should_run(state: MpsSeen) -> bool:
    return state.is_wanted and not state.mig_enabled
