"""What an executor's refusal to start an attempt means for the attempt."""

from collections.abc import Mapping
from typing import Final

from schemas.errors import ErrorCode, Refused
from schemas.executor.attempts import AttemptOutcome, Failure, FailureKind
from services.orchestrator.domain.records import Task
from shared.failures import RULES

_REFUSED_FOR_GOOD: Final = "the executor refused to start it"

_KIND_OF_CODE: Final[Mapping[ErrorCode, FailureKind]] = {
    ErrorCode.LEASE_LOST: FailureKind.LEASE_LOST,
    ErrorCode.STALE_EPOCH: FailureKind.LEASE_LOST,
    ErrorCode.CONFLICT: FailureKind.CANCELLED,
    ErrorCode.BAD_REQUEST: FailureKind.BAD_PARAMETER,
    ErrorCode.UNSUPPORTED: FailureKind.ENGINE_MISSING,
}

# What a node lacks, by the field that needs it; the first that a path begins with.
_LACKING: Final = (
    ("$.model", FailureKind.MODEL_MISSING),
    ("$.engine.model", FailureKind.MODEL_MISSING),
    ("$.engine.image_tag", FailureKind.IMAGE_MISSING),
    ("$.runtime_image_tag", FailureKind.IMAGE_MISSING),
    ("$.engine.runtime", FailureKind.RUNTIME_UNAVAILABLE),
    ("$.deployment_mode", FailureKind.RUNTIME_UNAVAILABLE),
    ("$.devices", FailureKind.GPU_UNAVAILABLE),
    ("$.benchmark", FailureKind.BENCHMARK_FAILED),
)


def outcome_of_refusal(task: Task, refused: Refused) -> AttemptOutcome:
    """A lost lease is not the attempt's fault; a cancelled one is not started any more."""
    if refused.code in {ErrorCode.LEASE_LOST, ErrorCode.STALE_EPOCH}:
        return AttemptOutcome.INTERRUPTED
    if refused.code is ErrorCode.CONFLICT and task.cancel_requested:
        return AttemptOutcome.CANCELLED
    return AttemptOutcome.FAILED


def failure_of_refusal(refused: Refused) -> Failure:
    """The refusal as a failure, with what to do about it."""
    kind = _kind(refused)
    place = f" at {refused.path}" if refused.path else ""
    return Failure(
        kind=kind, message=f"{_REFUSED_FOR_GOOD}: {refused.message}{place}", hint=RULES[kind].hint
    )


def _kind(refused: Refused) -> FailureKind:
    path = refused.path or ""
    if refused.code is ErrorCode.UNSUPPORTED or path.startswith("$.model"):
        failure_kind = next((kind for field, kind in _LACKING if path.startswith(field)), None)
        if failure_kind is not None:
            return failure_kind
    return _KIND_OF_CODE.get(refused.code, FailureKind.INTERNAL)
