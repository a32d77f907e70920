"""Which power limit and which locked clock a device takes."""

from collections.abc import Collection

from schemas.errors import ErrorCode
from schemas.telemetry.readings import DeviceFacts
from shared.errors import RefusedError


def limit_for(facts: DeviceFacts | None, uuid: str, watts: float | None) -> float:
    """Return the limit to set: `watts` if the device allows it, its default for None.

    `facts` is None for a missing device. Raises RefusedError (not_found, unsupported, bad_request
    with the limits in `details`).
    """
    if facts is None:
        raise RefusedError(ErrorCode.NOT_FOUND, f"there is no device {uuid}", path="device_uuid")
    lowest, highest = facts.power_limit_min_w, facts.power_limit_max_w
    limit = facts.power_limit_default_w if watts is None else watts
    if limit is None or lowest is None or highest is None:
        raise RefusedError(ErrorCode.UNSUPPORTED, f"the power of {uuid} cannot be limited")
    if not lowest <= limit <= highest:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected {lowest:g} to {highest:g} W for {uuid}, found {limit:g} W",
            path="power_limit_w",
            details={"minimum_w": lowest, "maximum_w": highest},
        )
    return limit


def check_clock(
    facts: DeviceFacts | None, uuid: str, mhz: int | None, supported_mhz: Collection[int]
) -> None:
    """Let a clock pass that lies within those that the device supports; it takes the nearest.

    None, its own, always passes. `facts` is None for a device that is not there. Raises
    RefusedError (not_found, unsupported, bad_request with the limits in `details`).
    """
    if facts is None:
        raise RefusedError(ErrorCode.NOT_FOUND, f"there is no device {uuid}", path="device_uuid")
    if mhz is None:
        return
    if not supported_mhz:
        raise RefusedError(ErrorCode.UNSUPPORTED, f"the clock of {uuid} cannot be locked")
    lowest, highest = min(supported_mhz), max(supported_mhz)
    if not lowest <= mhz <= highest:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected {lowest} to {highest} MHz for {uuid}, found {mhz} MHz",
            path="sm_clock_mhz",
            details={"minimum_mhz": lowest, "maximum_mhz": highest},
        )
