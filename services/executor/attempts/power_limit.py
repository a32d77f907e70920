"""Limits the power of an attempt's GPUs, and locks their clock, before its engine starts.

The GPUs' agent takes both back when the reservation ends, however it ends, and keeps what it has to
take back on disk: nothing is to be undone here.
"""

from collections.abc import Iterator
from typing import Final
from uuid import uuid5

from schemas.errors import Refused
from schemas.executor.attempts import FailureKind, StartExperiment
from schemas.gpus.device_grant import DeviceGrant
from schemas.telemetry.readings import SetPowerLimit
from services.executor.domain.verdict import AttemptFailed
from shared.errors import UnavailableError
from shared.messaging.bus import Bus

ANSWER_TIMEOUT_SECONDS: Final = 10.0


async def limit_power(command: StartExperiment, bus: Bus) -> None:
    """Set power limit and clock on this node's devices; nothing without. Raises AttemptFailed."""
    for device in command.devices:
        if device.node_id != command.executor_id:
            continue  # its own executor does
        for limit, kind, state in _limits(command, device):
            try:
                reply = await bus.request(limit, timeout_seconds=ANSWER_TIMEOUT_SECONDS)
            except UnavailableError as error:
                reason = f"the agent of {device.node_id} does not answer: {error}"
            else:
                if not isinstance(reply, Refused):
                    continue
                reason = reply.message
            raise AttemptFailed.of(
                kind, f"expected GPU {device.index} of {device.node_id} {state}: {reason}"
            )


def _limits(
    command: StartExperiment, device: DeviceGrant
) -> Iterator[tuple[SetPowerLimit, FailureKind, str]]:
    """Yield each setting for a device, the failure if it is refused, and the intended state in
    words.
    """
    if (watts := command.power_limit_w) is not None:
        limit = SetPowerLimit(
            command_id=uuid5(command.attempt_id, device.uuid),
            node_id=device.node_id,
            device_uuid=device.uuid,
            power_limit_w=watts,
            reservation_id=command.reservation_id,
        )
        yield limit, FailureKind.POWER_LIMIT_REFUSED, f"limited to {watts:g} W"
    if (mhz := command.sm_clock_mhz) is not None:
        limit = SetPowerLimit(
            command_id=uuid5(command.attempt_id, f"{device.uuid}/sm_clock_mhz"),
            node_id=device.node_id,
            device_uuid=device.uuid,
            power_limit_w=None,
            sm_clock_mhz=mhz,
            reservation_id=command.reservation_id,
        )
        yield limit, FailureKind.SM_CLOCK_REFUSED, f"locked to {mhz} MHz"
