"""One attempt over several nodes: which node is which rank, and when all ranks have to stop."""

import math
from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import PLATFORM, node_speaker
from schemas.errors import ErrorCode, Refused
from schemas.executor.attempts import (
    AttemptOutcome,
    CancelExperiment,
    Failure,
    FailureKind,
    GangPlace,
    StartExperiment,
)
from schemas.executor.ranks import RankState, RankView, StartRank
from schemas.gpus.device_grant import DeviceGrant
from services.executor.domain.verdict import Verdict, cancellation_verdict, failure
from shared.failures import RULES
from shared.lease import Lease

POLL_SECONDS: Final = 0.25
POLLS_PER_SECOND: Final = 400  # of one coordinator, over all of its ranks
SIMULTANEOUS_SECONDS: Final = 0.5
OVER: Final = frozenset({RankState.ENDING, RankState.ENDED})

# Say nothing about the experiment, so it is repeated.
_CUT_OFF: Final = frozenset(
    {FailureKind.LEASE_LOST, FailureKind.EXECUTOR_RESTARTED, FailureKind.NODE_LOST}
)
# Failures that an engine has by itself, not for want of its peers.
_CONCLUSIVE: Final = frozenset(
    {
        FailureKind.OUT_OF_MEMORY,
        FailureKind.GPU_OUT_OF_MEMORY,
        FailureKind.GPU_UNAVAILABLE,
        FailureKind.CUDA_ERROR,
        FailureKind.DISK_FULL,
    }
)
_STALE: Final = frozenset({ErrorCode.LEASE_LOST, ErrorCode.STALE_EPOCH})


def nodes_of(devices: Sequence[DeviceGrant]) -> tuple[str, ...]:
    """The nodes by rank: in the order in which they appear."""
    return tuple(dict.fromkeys(device.node_id for device in devices))


def is_coordinated(command: StartExperiment) -> bool:
    """Return whether the executor that received this command starts the other ranks on other
    executors.
    """
    return command.gang is None and len(nodes_of(command.devices)) > 1


def rank_of(command: StartExperiment) -> int:
    return command.gang.rank if command.gang is not None else 0


def is_coordinated_by(command: StartExperiment, speaker: str) -> bool:
    """Return whether `speaker` may start and cancel this node's part of the attempt."""
    coordinator = command.gang and node_speaker(command.gang.coordinator_id)
    return speaker in {PLATFORM, coordinator}


def rank_starts(command: StartExperiment) -> tuple[StartExperiment, ...]:
    """The commands for ranks 1 and up; the same attempt always gives the same commands."""
    nodes = nodes_of(command.devices)
    return tuple(
        replace(
            command,
            command_id=_command_id(command.attempt_id, "start", rank),
            executor_id=node_id,
            gang=GangPlace(rank=rank, size=len(nodes), coordinator_id=command.executor_id),
            speaker=node_speaker(command.executor_id),
        )
        for rank, node_id in enumerate(nodes)
        if rank > 0
    )


def start_rank(start: StartExperiment, leader_address: str, leader_port: int) -> StartRank:
    return StartRank(
        command_id=_command_id(start.attempt_id, "go", rank_of(start)),
        executor_id=start.executor_id,
        attempt_id=start.attempt_id,
        leader_address=leader_address,
        leader_port=leader_port,
        speaker=start.speaker,
    )


def cancel_rank(start: StartExperiment) -> CancelExperiment:
    return CancelExperiment(
        command_id=_command_id(start.attempt_id, "cancel", rank_of(start)),
        executor_id=start.executor_id,
        experiment_id=start.experiment_id,
        attempt_id=start.attempt_id,
        reason="the attempt is over",
        speaker=start.speaker,
    )


def _command_id(attempt_id: UUID, word: str, rank: int) -> UUID:
    return uuid5(attempt_id, f"{word}-rank-{rank}")


def poll_seconds(size: int) -> float:
    return max(POLL_SECONDS, size / POLLS_PER_SECOND)


class RankStatus(Struct, frozen=True, kw_only=True):
    """The coordinator's view of one rank.

    `answered_at` is when it last answered, monotonic seconds; before its first answer, when it was
    first polled. `refusal` is final.
    """

    rank: int
    node_id: str
    answered_at: float
    has_answered: bool = False
    view: RankView | None = None
    refusal: Refused | None = None

    @property
    def is_ready(self) -> bool:
        return self.view is not None and self.view.state in {RankState.READY, RankState.RUNNING}


def first_failure(ranks: Sequence[RankStatus], now: float, ttl_seconds: float) -> Verdict | None:
    """Return why the attempt cannot go on; None while every rank may.

    The engines of the others end soon after the first one, so the earliest failure counts. A rank
    that has not answered for a whole lease has stopped itself by now.
    """
    return _first(_failures(ranks, now, ttl_seconds))


def cause(
    own_verdict: Verdict,
    own_seconds: float,
    ranks: Sequence[RankStatus],
    now: float,
    ttl_seconds: float,
) -> Verdict:
    """The earliest of rank 0's failure, `own_seconds` ago, and those of the other ranks.

    Conclusive only once every rank has answered since, or has not for a whole lease: a silent one
    may be the cause. The order of failures within `SIMULTANEOUS_SECONDS` is not known; among those
    a conclusive one counts before rank 0's engine that just ended.
    """
    failures = _failures(ranks, now, ttl_seconds)
    first = _first([failure for failure in failures if failure[0] > own_seconds])
    if first is not None or is_conclusive(own_verdict.failure):
        return first or own_verdict
    conclusive = [
        rank for rank in ranks if rank.view is not None and is_conclusive(rank.view.failure)
    ]
    together = [
        failure
        for failure in _failures(conclusive, now, ttl_seconds)
        if own_seconds - failure[0] <= SIMULTANEOUS_SECONDS
    ]
    return _first(together) or own_verdict


def is_conclusive(failure: Failure | None) -> bool:
    """Return True for a failure that an engine has by itself, not for want of its peers."""
    if failure is None:
        return False
    by_signal = failure.exit_code is not None and failure.exit_code < 0
    return failure.kind in _CONCLUSIVE or (failure.kind is FailureKind.ENGINE_EXITED and by_signal)


def _failures(
    ranks: Sequence[RankStatus], now: float, ttl_seconds: float
) -> list[tuple[float, Verdict]]:
    """The ranks that failed: how long ago, and the verdict."""
    failures = (_failure_of(status, now, ttl_seconds) for status in ranks)
    return [failure for failure in failures if failure is not None]


def _first(failures: Sequence[tuple[float, Verdict]]) -> Verdict | None:
    return max(failures, key=lambda failure: failure[0])[1] if failures else None


def _failure_of(status: RankStatus, now: float, ttl_seconds: float) -> tuple[float, Verdict] | None:
    """Return when the rank failed, in seconds ago, and the verdict; None if it has not."""
    silent_seconds = now - status.answered_at
    view = status.view
    if view is not None and view.state in OVER:
        # One whose executor was restarted since does not know, and counts as the first.
        over_seconds = math.inf if view.over_seconds is None else view.over_seconds
        return over_seconds + silent_seconds, _judge_end(status, view)
    if status.refusal is not None:
        return silent_seconds, _judge_refusal(status, status.refusal)
    if silent_seconds >= ttl_seconds:
        return silent_seconds, _silent(status, silent_seconds)
    return None


def _judge_end(status: RankStatus, view: RankView) -> Verdict:
    cause = view.failure or failure(FailureKind.INTERNAL, "it ended and did not say why")
    return _judge_stop(
        Failure(
            kind=FailureKind.RANK_FAILED,
            message=f"rank {status.rank} on {status.node_id}: {cause.message}",
            exit_code=cause.exit_code,
            log_tail=cause.log_tail,
            hint=cause.hint or RULES[cause.kind].hint,
        ),
        is_cut_off=cause.kind in _CUT_OFF,
    )


def _judge_refusal(status: RankStatus, refusal: Refused) -> Verdict:
    is_missing = refusal.code is ErrorCode.UNSUPPORTED
    hint = RULES[FailureKind.ENGINE_MISSING if is_missing else FailureKind.RANK_FAILED].hint
    message = f"rank {status.rank} on {status.node_id} was refused: {refusal.message}"
    return _judge_stop(
        failure(FailureKind.RANK_FAILED, message, hint=hint), is_cut_off=refusal.code in _STALE
    )


def _silent(status: RankStatus, silent_seconds: float) -> Verdict:
    how = "has not answered" if status.has_answered else "has never answered, waited"
    message = (
        f"rank {status.rank} on {status.node_id}: its executor {how} for {silent_seconds:.1f} s"
    )
    return _judge_stop(failure(FailureKind.NODE_LOST, message), is_cut_off=True)


def _judge_stop(why: Failure, *, is_cut_off: bool) -> Verdict:
    outcome = AttemptOutcome.INTERRUPTED if is_cut_off else AttemptOutcome.FAILED
    return Verdict(outcome=outcome, failure=why)


def coordinator_lost(
    place: GangPlace, lease: Lease, now: float, answer: RankView | Refused | None
) -> Verdict | None:
    """Return why a member has to end without its coordinator; None while it may go on.

    `lease` counts from when the last answered poll was sent: the coordinator waits as long for the
    end of ranks that it cannot reach. `answer` is the latest, None without one.
    """
    where = f"the coordinator on {place.coordinator_id}"
    if isinstance(answer, RankView) and answer.state in OVER:
        return cancellation_verdict(f"{where} says that the attempt is over")
    if isinstance(answer, Refused) and answer.code is ErrorCode.NOT_FOUND:
        return cancellation_verdict(f"{where} does not know the attempt")
    if now < lease.stop_at:
        return None
    message = f"{where} has not answered for {now - lease.confirmed_at:.1f} s"
    return _judge_stop(failure(FailureKind.NODE_LOST, message), is_cut_off=True)
