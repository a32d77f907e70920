"""The gateway's API as typed methods."""

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from schemas.cluster.node_selection import ClusterStatus, NodeSelection, NodeSummaries
from schemas.errors import Accepted
from schemas.executor.logs import LogChunk
from schemas.gateway import endpoints
from schemas.gateway.views import GpuAllocMap, GpuList, NodeList
from schemas.gpus.checks import Check, CheckView
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import ExperimentList, ExperimentView, TaskPlan, TaskView
from schemas.scheduler.policy import PolicyTrial, TriedPolicy
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import (
    AvailabilityView,
    DecisionList,
    EstimateView,
    Explanation,
    Replay,
    ReservationView,
)
from shared.client.archives import ArchiveClient
from shared.client.comparison import ComparisonClient
from shared.client.datasets import DatasetClient
from shared.client.nodes import NodeClient
from shared.client.presets import PresetClient
from shared.client.reports import ReportClient
from shared.client.secrets import SecretClient
from shared.client.streams import StreamClient
from shared.client.tokens import TokenClient
from shared.ids import new_id

MAX_POLL_SECONDS: Final = 30.0


class _Stored(msgspec.Struct):
    """The part of an answer to a POST that every form of it has."""

    task_id: UUID | None = None
    reservation_id: UUID | None = None


class StewardClient(
    ArchiveClient,
    ComparisonClient,
    DatasetClient,
    NodeClient,
    PresetClient,
    ReportClient,
    SecretClient,
    StreamClient,
    TokenClient,
):
    """Talks to one gateway; what `GatewayConnection` says of time-outs and errors holds here."""

    async def submit_task(
        self,
        task: bytes,
        *,
        namespace: str | None = None,
        requester: str | None = None,
        command_id: UUID | None = None,
    ) -> UUID:
        """Submit a task file as it is; return the task's id. An admin may name a `requester`."""
        stored = await self.call(
            endpoints.SUBMIT_TASK.read_as(_Stored),
            task,
            command_id=command_id,
            namespace=namespace,
            requester=requester,
        )
        if stored.task_id is None:
            raise self.unreadable(endpoints.SUBMIT_TASK.answer.__name__, "no task_id")
        return stored.task_id

    async def validate_task(self, task: bytes) -> TaskPlan:
        """Return the plan of a task; nothing is stored."""
        return await self.call(endpoints.VALIDATE_TASK, task)

    async def check(self, question: Check) -> CheckView:
        """Check by rule whether something would work; nothing is reserved or stored."""
        return await self.call(endpoints.CHECK, question)

    async def tasks(
        self,
        *,
        namespace: str | None = None,
        states: Iterable[TaskState] = (),
        archived: bool = False,
        limit: int | None = None,
    ) -> tuple[TaskView, ...]:
        """Tasks, newest first; all of them without a `limit`, with `archived` those too."""
        return await self.list_all(
            endpoints.LIST_TASKS,
            lambda page: page.tasks,
            limit,
            namespace=namespace,
            state=tuple(states),
            archived=archived or None,
        )

    async def task(self, task_id: UUID) -> TaskView:
        return await self.call(endpoints.GET_TASK, task_id=task_id)

    async def cancel_task(self, task_id: UUID, reason: str = "") -> None:
        """Have a task stopped; it is over when its state says so."""
        await self.call(endpoints.CANCEL_TASK, {"reason": reason}, task_id=task_id)

    async def pause_task(self, task_id: UUID) -> TaskView:
        """Start no further experiment of a task."""
        return await self.call(endpoints.PAUSE_TASK, task_id=task_id)

    async def resume_task(self, task_id: UUID) -> TaskView:
        """Start experiments of a paused task again."""
        return await self.call(endpoints.RESUME_TASK, task_id=task_id)

    async def delete_task(self, task_id: UUID) -> None:
        """Delete a finished task with its experiments and their measurements."""
        await self.call(endpoints.DELETE_TASK, task_id=task_id)

    async def experiments(
        self,
        task_id: UUID | None = None,
        *,
        states: Iterable[ExperimentState] = (),
        namespace: str | None = None,
        node_id: str | None = None,
        archived: bool = False,
        limit: int | None = None,
        monitoring: bool = True,
    ) -> tuple[ExperimentView, ...]:
        """Experiments of a task, or of all, newest task first; all of them without a `limit`.

        With a `node_id` only those with an attempt on it; a task's are all in one namespace. Those
        of archived tasks only with their `task_id`, or `archived`. Faster without `monitoring`.
        """
        parameters: dict[str, object] = {
            "state": tuple(states),
            "node_id": node_id,
            "monitoring": monitoring,
        }
        if task_id is None:
            endpoint = endpoints.LIST_EXPERIMENTS.read_as(ExperimentList)
            parameters |= {"namespace": namespace, "archived": archived or None}
        else:
            endpoint = endpoints.LIST_TASK_EXPERIMENTS.read_as(ExperimentList)
            parameters["task_id"] = task_id
        return await self.list_all(endpoint, lambda page: page.experiments, limit, **parameters)

    async def experiment(self, experiment_id: UUID) -> ExperimentView:
        """Read one experiment with its measurements."""
        endpoint = endpoints.GET_EXPERIMENT.read_as(ExperimentView)
        return await self.call(endpoint, experiment_id=experiment_id)

    async def delete_experiment(self, experiment_id: UUID) -> None:
        """Delete one experiment of a finished task with its measurements."""
        await self.call(endpoints.DELETE_EXPERIMENT, experiment_id=experiment_id)

    async def experiment_document(self, experiment_id: UUID) -> dict[str, Any]:
        """Read one experiment as plain data, with everything that the gateway joins to it."""
        endpoint = endpoints.GET_EXPERIMENT.read_as(dict[str, Any])
        return await self.call(endpoint, experiment_id=experiment_id)

    async def experiment_log(
        self,
        experiment_id: UUID,
        *,
        attempt: int | None = None,
        offset: int | None = None,
        lines: int = 200,
    ) -> LogChunk:
        """The last lines that an attempt's engine wrote, or those from a byte offset on."""
        return await self.call(
            endpoints.READ_LOG,
            experiment_id=experiment_id,
            attempt=attempt,
            offset=offset,
            lines=lines,
        )

    async def gpus(self, *, node_id: str | None = None, use_cache: bool = True) -> GpuList:
        """List GPUs with their last reading; `use_cache=False` reads the nodes anew."""
        return await self.call(
            endpoints.LIST_GPUS, node_id=node_id, use_cache=None if use_cache else False
        )

    async def nodes(self) -> NodeList:
        return await self.call(endpoints.LIST_NODES)

    async def allocation_map(self, node_id: str) -> GpuAllocMap:
        """Return the allocations on a node's devices."""
        return await self.call(endpoints.GET_GPU_ALLOC_MAP, node_id=node_id)

    async def estimate(self, task_config: Mapping[str, Any]) -> EstimateView:
        """GPUs and memory that a task configuration needs."""
        return await self.call(endpoints.ESTIMATE, task_config)

    async def availability(
        self, request: GpuRequest, *, wait_seconds: float = 0.0
    ) -> AvailabilityView:
        """Return whether a request would be granted now, or within `wait_seconds`; reserves
        nothing.
        """
        return await self.call(
            endpoints.CHECK_AVAILABILITY,
            request,
            wait_seconds=round(wait_seconds, 3) or None,
            timeout_seconds=wait_seconds + self.timeout_seconds,
        )

    async def await_availability(
        self, request: GpuRequest, *, timeout_seconds: float
    ) -> AvailabilityView:
        """The answer as soon as the request would be granted, or as it is at the time-out.

        What the fleet can never give is answered at once. The gateway holds each question until
        there is something to answer; nothing is polled.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            seconds_left = max(0.0, min(deadline - time.monotonic(), MAX_POLL_SECONDS))
            view = await self.availability(request, wait_seconds=seconds_left)
            if view.available or view.impossible or time.monotonic() >= deadline:
                return view

    async def cluster_status(self) -> ClusterStatus:
        """List every GPU of every node, as node selection sees it."""
        return await self.call(endpoints.GET_CLUSTER_STATUS)

    async def node_summaries(
        self, utilization_threshold: float = 30.0, memory_threshold: float = 50.0
    ) -> NodeSummaries:
        """GPUs summed up by node; idle are those below both thresholds."""
        return await self.call(
            endpoints.GET_NODE_SUMMARIES,
            utilization_threshold=utilization_threshold,
            memory_threshold=memory_threshold,
        )

    async def select_node(
        self,
        required_gpus: int,
        utilization_threshold: float = 30.0,
        memory_threshold: float = 50.0,
    ) -> NodeSelection:
        """The node that a deployment would get now; none leaves the choice to Kubernetes."""
        return await self.call(
            endpoints.SELECT_NODE,
            required_gpus=required_gpus,
            utilization_threshold=utilization_threshold,
            memory_threshold=memory_threshold,
        )

    async def select_node_for(self, request: GpuRequest) -> NodeSelection:
        """The node that a deployment with this request would get now."""
        return await self.call(endpoints.SELECT_NODE_FOR, request)

    async def request_reservation(
        self,
        request: GpuRequest,
        *,
        holder: str,
        namespace: str | None = None,
        requester: str | None = None,
        reservation_id: UUID | None = None,
    ) -> UUID:
        """Request GPUs; return the reservation's id. `await_reservation` awaits the grant.

        An admin may name a `requester`; without one it is who sends this.
        """
        reservation_id = reservation_id or new_id()
        document: dict[str, Any] = {
            "reservation_id": reservation_id,
            "holder": holder,
            "request": request,
        }
        if namespace is not None:
            document["namespace"] = namespace
        if requester is not None:
            document["requester"] = requester
        stored = await self.call(endpoints.REQUEST_RESERVATION.read_as(_Stored), document)
        return stored.reservation_id or reservation_id

    async def reservations(
        self,
        *,
        states: Iterable[ReservationState] = (),
        namespace: str | None = None,
        node_id: str | None = None,
        limit: int | None = None,
    ) -> tuple[ReservationView, ...]:
        """Reservations, newest first; all of them without a `limit`."""
        return await self.list_all(
            endpoints.LIST_RESERVATIONS,
            lambda page: page.reservations,
            limit,
            state=tuple(states),
            namespace=namespace,
            node_id=node_id,
        )

    async def reservation(self, reservation_id: UUID) -> ReservationView:
        return await self.call(endpoints.GET_RESERVATION, reservation_id=reservation_id)

    async def await_reservation(
        self, reservation_id: UUID, *, timeout_seconds: float
    ) -> ReservationView:
        """The reservation as soon as it is not queued any more, or as it is at the time-out.

        The gateway holds each request until there is something to answer; nothing is polled.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            seconds_left = max(0.0, min(deadline - time.monotonic(), MAX_POLL_SECONDS))
            view = await self.call(
                endpoints.GET_RESERVATION,
                reservation_id=reservation_id,
                wait_seconds=round(seconds_left, 3),
                timeout_seconds=seconds_left + self.timeout_seconds,
            )
            if view.state is not ReservationState.QUEUED or time.monotonic() >= deadline:
                return view

    async def renew_reservation(
        self, reservation_id: UUID, epoch: int, *, activate: bool = False
    ) -> Accepted:
        """Renew a lease; `activate` before anything starts on the devices."""
        document = {"epoch": epoch, "activate": activate}
        return await self.call(endpoints.RENEW_RESERVATION, document, reservation_id=reservation_id)

    async def release_reservation(
        self, reservation_id: UUID, epoch: int, *, stopped: bool = True
    ) -> None:
        """Give the devices back; `stopped` says that nothing runs on them any more."""
        await self.call(
            endpoints.END_RESERVATION, reservation_id=reservation_id, epoch=epoch, stopped=stopped
        )

    async def exempt_reservation(
        self, reservation_id: UUID, *, until_at: datetime, reason: str
    ) -> None:
        """Never find it idle before a time."""
        body = {"until_at": until_at.isoformat(), "reason": reason}
        await self.call(endpoints.EXEMPT_RESERVATION, body, reservation_id=reservation_id)

    async def cancel_reservation(self, reservation_id: UUID) -> None:
        """Withdraw a reservation in whatever state it is."""
        await self.call(endpoints.END_RESERVATION, reservation_id=reservation_id)

    async def explain_reservation(self, reservation_id: UUID) -> Explanation:
        """Explain why a reservation waits: every reason, what would help, when it is expected to
        start.
        """
        return await self.call(endpoints.EXPLAIN_RESERVATION, reservation_id=reservation_id)

    async def what_if(self, reservation_id: UUID, request: GpuRequest) -> AvailabilityView:
        """Return whether a waiting reservation would be granted now with this request instead."""
        return await self.call(endpoints.WHAT_IF, request, reservation_id=reservation_id)

    async def decisions(
        self, *, after_id: int = 0, reservation_id: UUID | None = None, limit: int = 100
    ) -> DecisionList:
        """Recorded decisions with what they were made on, oldest first."""
        return await self.call(
            endpoints.LIST_DECISIONS,
            after_id=after_id,
            limit=limit,
            reservation_id=reservation_id,
        )

    async def try_policy(
        self, policy: TriedPolicy, *, since_at: datetime | None = None
    ) -> PolicyTrial:
        """Replay the recorded requests under another policy, by default those of a week."""
        return await self.call(endpoints.TRY_POLICY, policy=policy, since_at=since_at)

    async def replay(
        self, *, from_id: int | None = None, reservation_id: UUID | None = None, limit: int = 100
    ) -> Replay:
        """Recorded decisions, decided again: whether each comes out the same."""
        return await self.call(
            endpoints.REPLAY_DECISIONS,
            from_id=from_id,
            limit=limit,
            reservation_id=reservation_id,
        )
