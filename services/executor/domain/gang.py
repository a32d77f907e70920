"""One attempt over several nodes: who is which rank, and when all of them have to stop."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode, Refused
from schemas.executor import (
    AttemptOutcome,
    CancelExperiment,
    Failure,
    FailureKind,
    GangPlace,
    StartExperiment,
)
from schemas.executor_ranks import RankState, RankView, StartRank
from schemas.gpu_request import DeviceGrant
from services.executor.domain.lease import Lease
from services.executor.domain.verdict import Verdict, cancelled, failure
from shared.failures import RULES

LOOK_SECONDS: Final = 0.25
LOOKS_PER_SECOND: Final = 400  # of a coordinator, over all of its ranks
TOGETHER_SECONDS: Final = 0.5
OVER: Final = frozenset({RankState.ENDING, RankState.ENDED})

# Which say nothing about the experiment, so that it is repeated.
_CUT_OFF: Final = frozenset(
    {FailureKind.LEASE_LOST, FailureKind.EXECUTOR_RESTARTED, FailureKind.NODE_LOST}
)
# Of an engine by itself, not of one whose peers are gone.
_TELLING: Final = frozenset(
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
    """Whether the executor that was sent this has others start the other ranks."""
    return command.gang is None and len(nodes_of(command.devices)) > 1


def rank_of(command: StartExperiment) -> int:
    return command.gang.rank if command.gang is not None else 0


def member_starts(command: StartExperiment) -> tuple[StartExperiment, ...]:
    """What the coordinator sends on, to ranks 1 and up. The same attempt always gives the same."""
    nodes = nodes_of(command.devices)
    return tuple(
        replace(
            command,
            command_id=_command_id(command.attempt_id, "start", rank),
            executor_id=node_id,
            gang=GangPlace(rank=rank, size=len(nodes), coordinator_id=command.executor_id),
        )
        for rank, node_id in enumerate(nodes)
        if rank > 0
    )


def member_go(start: StartExperiment, leader_address: str, leader_port: int) -> StartRank:
    """The word to begin for the rank that got `start`."""
    return StartRank(
        command_id=_command_id(start.attempt_id, "go", rank_of(start)),
        executor_id=start.executor_id,
        attempt_id=start.attempt_id,
        leader_address=leader_address,
        leader_port=leader_port,
    )


def member_cancel(start: StartExperiment) -> CancelExperiment:
    """The word to end for the rank that got `start`."""
    return CancelExperiment(
        command_id=_command_id(start.attempt_id, "cancel", rank_of(start)),
        executor_id=start.executor_id,
        experiment_id=start.experiment_id,
        attempt_id=start.attempt_id,
        reason="the attempt is over",
    )


def _command_id(attempt_id: UUID, word: str, rank: int) -> UUID:
    return uuid5(attempt_id, f"{word}-rank-{rank}")


def look_seconds(size: int) -> float:
    """The pause between two questions to one rank."""
    return max(LOOK_SECONDS, size / LOOKS_PER_SECOND)


class Heard(Struct, frozen=True, kw_only=True):
    """What the coordinator knows of one rank.

    `heard_at` is of its last answer, monotonic seconds; before the first one, of when it was first
    asked. `refusal` is final.
    """

    rank: int
    node_id: str
    heard_at: float
    has_answered: bool = False
    view: RankView | None = None
    refusal: Refused | None = None

    @property
    def is_ready(self) -> bool:
        return self.view is not None and self.view.state in {RankState.READY, RankState.RUNNING}

    @property
    def is_over(self) -> bool:
        return self.view is not None and self.view.state in OVER


def first_failure(ranks: Sequence[Heard], now: float, ttl_seconds: float) -> Verdict | None:
    """Why the attempt cannot go on; None while every rank may.

    The engines of the others end soon after the first one, so of several the first counts. One that
    has not been heard of for a whole lease has stopped by now, whatever became of it.
    """
    return _first(_failures(ranks, now, ttl_seconds))


def cause(
    own: Verdict, own_seconds: float, ranks: Sequence[Heard], now: float, ttl_seconds: float
) -> Verdict:
    """Of rank 0's failure, `own_seconds` ago, and those of the others the one that came first.

    Only if all have been heard of since, or not for a lease: who is silent may be the cause. Of
    what ended as good as together nobody saw which was first; then an engine that was killed, or
    says why it failed, goes before rank 0's that just ended.
    """
    failures = _failures(ranks, now, ttl_seconds)
    first = _first([each for each in failures if each[0] > own_seconds])
    if first is not None or _is_telling(own.failure):
        return first or own
    told = [each for each in ranks if each.view is not None and _is_telling(each.view.failure)]
    together = [
        each
        for each in _failures(told, now, ttl_seconds)
        if own_seconds - each[0] <= TOGETHER_SECONDS
    ]
    return _first(together) or own


def _is_telling(failure: Failure | None) -> bool:
    if failure is None:
        return False
    by_signal = failure.exit_code is not None and failure.exit_code < 0
    return failure.kind in _TELLING or (failure.kind is FailureKind.ENGINE_EXITED and by_signal)


def _failures(
    ranks: Sequence[Heard], now: float, ttl_seconds: float
) -> list[tuple[float, Verdict]]:
    """How long ago each failed that has, and how."""
    found = (_failure_of(heard, now, ttl_seconds) for heard in ranks)
    return [(seconds, verdict) for seconds, verdict in found if verdict is not None]


def _first(failures: Sequence[tuple[float, Verdict]]) -> Verdict | None:
    return max(failures, key=lambda each: each[0])[1] if failures else None


def _failure_of(heard: Heard, now: float, ttl_seconds: float) -> tuple[float, Verdict | None]:
    """How long ago it failed, and how; (0, None) if it has not."""
    silent_seconds = now - heard.heard_at
    if heard.is_over and heard.view is not None:
        return _over_seconds(heard, now), _ended(heard, heard.view)
    if heard.refusal is not None:
        return silent_seconds, _refused(heard, heard.refusal)
    if silent_seconds >= ttl_seconds:
        return silent_seconds, _silent(heard, silent_seconds)
    return 0.0, None


def _over_seconds(heard: Heard, now: float) -> float:
    """Minus infinity for one that is not over; infinity if only an earlier life of it knew."""
    if not heard.is_over or heard.view is None:
        return float("-inf")
    if heard.view.over_seconds is None:
        return float("inf")
    return heard.view.over_seconds + now - heard.heard_at


def _ended(heard: Heard, view: RankView) -> Verdict:
    told = view.failure or failure(FailureKind.INTERNAL, "it ended and did not say why")
    return _stopped(
        Failure(
            kind=FailureKind.RANK_FAILED,
            message=f"rank {heard.rank} on {heard.node_id}: {told.message}",
            exit_code=told.exit_code,
            log_tail=told.log_tail,
            hint=told.hint or RULES[told.kind].hint,
        ),
        is_cut_off=told.kind in _CUT_OFF,
    )


def _refused(heard: Heard, refusal: Refused) -> Verdict:
    is_missing = refusal.code is ErrorCode.UNSUPPORTED
    hint = RULES[FailureKind.ENGINE_MISSING if is_missing else FailureKind.RANK_FAILED].hint
    message = f"rank {heard.rank} on {heard.node_id} was refused: {refusal.message}"
    return _stopped(
        failure(FailureKind.RANK_FAILED, message, hint=hint), is_cut_off=refusal.code in _STALE
    )


def _silent(heard: Heard, silent_seconds: float) -> Verdict:
    how = "has not answered" if heard.has_answered else "has never answered, waited"
    message = f"rank {heard.rank} on {heard.node_id}: its executor {how} for {silent_seconds:.1f} s"
    return _stopped(failure(FailureKind.NODE_LOST, message), is_cut_off=True)


def _stopped(why: Failure, *, is_cut_off: bool) -> Verdict:
    outcome = AttemptOutcome.INTERRUPTED if is_cut_off else AttemptOutcome.FAILED
    return Verdict(outcome=outcome, failure=why)


def left_alone(
    place: GangPlace, lease: Lease, now: float, answer: RankView | Refused | None
) -> Verdict | None:
    """Why a member has to end for want of its coordinator; None while it may go on.

    `lease` counts from the sending of the last question that was answered: the coordinator waits
    for the end of ranks that it cannot reach for as long. `answer` is the latest, if there is one.
    """
    where = f"the coordinator on {place.coordinator_id}"
    if isinstance(answer, RankView) and answer.state in OVER:
        return cancelled(f"{where} says that the attempt is over")
    if isinstance(answer, Refused) and answer.code is ErrorCode.NOT_FOUND:
        return cancelled(f"{where} does not know the attempt")
    if now < lease.stop_at:
        return None
    message = f"{where} has not answered for {now - lease.confirmed_at:.1f} s"
    return _stopped(failure(FailureKind.NODE_LOST, message), is_cut_off=True)
