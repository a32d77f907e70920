"""The secrets that a task names, asked for when its engine starts and kept nowhere."""

import asyncio
from collections.abc import Mapping
from typing import Final

from schemas.base import node_speaker
from schemas.errors import ErrorCode
from schemas.executor.attempts import FailureKind, StartExperiment
from schemas.orchestrator.secrets import OpenedSecrets, OpenSecrets
from services.executor.domain.verdict import AttemptFailed
from shared.errors import RefusedError, UnavailableError
from shared.messaging.bus import Bus

RETRY_SECONDS: Final = 1.0
TRIES: Final = 60


async def open_secrets(command: StartExperiment, bus: Bus) -> Mapping[str, str]:
    """Return the values by name. Raises AttemptFailed where they are refused, or nobody answers for
    a minute.
    """
    if not command.secrets:
        return {}
    query = OpenSecrets(speaker=node_speaker(command.executor_id), attempt_id=command.attempt_id)
    for number in range(TRIES):
        if number:
            await asyncio.sleep(RETRY_SECONDS)
        try:
            return (await bus.query(query, OpenedSecrets)).values
        except RefusedError as error:
            if error.code is not ErrorCode.UNAVAILABLE:
                raise AttemptFailed.of(FailureKind.SECRET_MISSING, error.message) from error
        except UnavailableError:
            continue
    raise AttemptFailed.of(
        FailureKind.INTERNAL, "the orchestrator does not answer, which keeps the task's secrets"
    )
