"""Limits the power of an attempt's GPUs before its engine starts.

The GPUs' agent takes the limit back when the reservation ends, however it ends, and keeps what it
has to take back on disk: nothing is to be undone here.
"""

from typing import Final
from uuid import uuid5

from schemas.errors import Refused
from schemas.executor.attempts import FailureKind, StartExperiment
from schemas.telemetry.readings import SetPowerLimit
from services.executor.domain.verdict import AttemptFailed
from shared.errors import UnavailableError
from shared.messaging.bus import Bus

ANSWER_SECONDS: Final = 10.0


async def limit_power(command: StartExperiment, bus: Bus) -> None:
    """Set the limit on this node's devices; nothing without one. Raises AttemptFailed."""
    watts = command.power_limit_w
    if watts is None:
        return
    for device in command.devices:
        if device.node_id != command.executor_id:
            continue  # its own executor does
        limit = SetPowerLimit(
            command_id=uuid5(command.attempt_id, device.uuid),
            node_id=device.node_id,
            device_uuid=device.uuid,
            power_limit_w=watts,
            reservation_id=command.reservation_id,
        )
        try:
            reply = await bus.request(limit, timeout_seconds=ANSWER_SECONDS)
        except UnavailableError as error:
            reason = f"the agent of {device.node_id} does not answer: {error}"
        else:
            if not isinstance(reply, Refused):
                continue
            reason = reply.message
        raise AttemptFailed.of(
            FailureKind.POWER_LIMIT_REFUSED,
            f"expected GPU {device.index} of {device.node_id} limited to {watts:g} W: {reason}",
        )
