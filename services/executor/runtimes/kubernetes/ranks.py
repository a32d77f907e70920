"""One engine over several nodes of a cluster: a pod on each, which start and end together."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from schemas.executor.attempts import Failure, FailureKind
from schemas.gpus.device_grant import ClusterPlacement
from services.executor.domain.gang import is_conclusive
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.kubernetes.deployment import EngineDeployment
from services.executor.runtimes.kubernetes.ending import ObjectsEnding
from services.executor.runtimes.runtime import LogSink
from shared.failures import RULES
from shared.waiting import cancel_and_wait

# The engines of the others end soon after the first one: within it a cause that an engine has by
# itself counts before one that it may have for want of its peers.
SIMULTANEOUS_SECONDS: Final = 1.0


def places_of(placement: ClusterPlacement) -> tuple[ClusterPlacement, ...]:
    """Return the place of each rank, which is one node."""
    first = replace(placement, other_nodes=())
    other_places = (
        replace(first, node_name=node.node_name, hostname=node.hostname)
        for node in placement.other_nodes
    )
    return (first, *other_places)


@dataclass(frozen=True, slots=True)
class RankLog:
    """The log of an attempt, in which each line of another rank than 0 says which it is of."""

    log: LogSink
    rank: int

    @property
    def path(self) -> Path:
        return self.log.path

    def append(self, data: bytes) -> None:
        self.log.append(b"[rank %d] %s" % (self.rank, data))

    def tail(self, lines: int) -> str:
        return self.log.tail(lines)


@dataclass(slots=True, kw_only=True, eq=False)
class EngineRanks:
    """A started engine of several pods; rank 0 is the first, and alone answers HTTP.

    `labels` find all that is made for any of them.
    """

    ranks: Sequence[EngineDeployment]
    labels: Mapping[str, str]

    async def until_ready(self, timeout_seconds: float) -> str:
        """Wait as `RunningEngine.until_ready`, for rank 0, while no other ends."""
        leader, *members = self.ranks
        ready = asyncio.create_task(leader.until_ready(timeout_seconds), name="rank_0_ready")
        ends = [asyncio.create_task(rank.until_ended(), name="rank_end") for rank in members]
        try:
            await asyncio.wait([ready, *ends], return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and ready.exception() is None:
                return ready.result()
            failures = await self._failures(ready, ends)
        finally:
            await cancel_and_wait(ready, *ends)
        raise AttemptFailed(self._cause(failures))

    async def until_ended(self) -> Failure:
        """Wait for the first rank that ends by itself, and say why the engine has."""
        ends = [asyncio.create_task(rank.until_ended(), name="rank_end") for rank in self.ranks]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return self._cause(await self._failures(None, ends))
        finally:
            await cancel_and_wait(*ends)

    async def stop(self, grace_seconds: float) -> None:
        first = self.ranks[0]
        await ObjectsEnding(
            cluster=first.cluster,
            kind=first.plan.kind,
            labels=self.labels,
            grace_seconds=grace_seconds,
        ).run()
        for rank in self.ranks:
            await rank.close()

    async def _failures(
        self, ready: "asyncio.Task[str] | None", ends: "Sequence[asyncio.Task[Failure]]"
    ) -> list[tuple[int, Failure]]:
        """Return what has failed by rank, the first first; those that follow at once with it."""
        tasks: list[asyncio.Task[Any]] = [*([ready] if ready is not None else []), *ends]
        first = {task for task in tasks if task.done()}
        await asyncio.wait(tasks, timeout=SIMULTANEOUS_SECONDS)
        ranks = range(len(self.ranks) - len(tasks), len(self.ranks))
        ended = [
            (task not in first, rank, _failure_of(task))
            for rank, task in zip(ranks, tasks, strict=True)
            if task.done()
        ]
        return [
            (rank, failure)
            for _, rank, failure in sorted(ended, key=lambda end: end[:2])
            if failure is not None
        ]

    def _cause(self, failures: Sequence[tuple[int, Failure]]) -> Failure:
        rank, cause = next(
            ((rank, failure) for rank, failure in failures if is_conclusive(failure)), failures[0]
        )
        if rank == 0:
            waiting = [
                f"rank {number}: {other.message}"
                for number, other in enumerate(self.ranks[1:], start=1)
            ]
            return replace(cause, message="; ".join([cause.message, *waiting]))
        node = self.ranks[rank].node_name
        return replace(
            cause,
            kind=FailureKind.RANK_FAILED,
            message=f"rank {rank} on {node}: {cause.message}",
            hint=cause.hint or RULES[cause.kind].hint,
        )


def _failure_of(task: "asyncio.Task[Any]") -> Failure | None:
    """Return why a rank failed; None of one that is ready. Raises an unexpected error."""
    error = task.exception()
    if isinstance(error, AttemptFailed):
        return error.failure
    result = task.result()
    return result if isinstance(result, Failure) else None
