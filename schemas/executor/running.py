"""What is under way on an executor."""

from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from schemas.base import Epoch, NodeId, PositiveInt, Query, View
from schemas.executor.attempts import AttemptPhase


class ListRunning(Query, frozen=True, kw_only=True, tag="executor.list_running"):
    """What runs on this executor? Answered by `RunningAttempts`."""

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId


class RunningAttempt(Struct, frozen=True, kw_only=True):
    """An attempt the executor has accepted and not finished."""

    experiment_id: UUID
    attempt_id: UUID
    attempt_number: PositiveInt
    reservation_id: UUID
    epoch: Epoch
    phase: AttemptPhase
    pids: tuple[int, ...] = ()


class RunningWorkload(Struct, frozen=True, kw_only=True):
    """Processes and containers of a host, or pods of a cluster, that name a reservation.

    `epoch` and `node_id` are None where the label does not say; several nodes may share a host.
    `ours`: the label names this installation too.
    """

    reservation_id: UUID
    epoch: Epoch | None = None
    pids: tuple[int, ...] = ()
    ours: bool = True
    container_ids: tuple[str, ...] = ()
    node_id: NodeId | None = None


class RunningAttempts(View, frozen=True, kw_only=True, tag="executor.running_attempts"):
    """Everything under way. `workloads` None: this executor does not search for labels."""

    executor_id: NodeId
    boot_id: UUID
    attempts: tuple[RunningAttempt, ...]
    workloads: tuple[RunningWorkload, ...] | None = None
