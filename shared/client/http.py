"""The gateway's API as typed methods."""

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import msgspec

from schemas.cluster.node_selection import ClusterStatus, NodeSelection, NodeSummaries
from schemas.errors import Accepted
from schemas.executor.logs import LogChunk
from schemas.gateway.views import GpuAllocMap, GpuList, NodeList
from schemas.gpus.checks import Check, CheckView
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import ExperimentList, ExperimentView, TaskList, TaskPlan, TaskView
from schemas.scheduler.policy import PolicyTrial, TriedPolicy
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import (
    AvailabilityView,
    DecisionList,
    DriftList,
    EstimateView,
    Explanation,
    Replay,
    ReservationList,
    ReservationView,
)
from shared.client.archives import ArchiveClient
from shared.client.connection import Parameters
from shared.client.nodes import NodeClient
from shared.client.presets import PresetClient
from shared.client.reports import ReportClient
from shared.client.streams import StreamClient
from shared.client.tokens import TokenClient
from shared.ids import new_id

LONGEST_POLL_SECONDS: Final = 30.0
REPLAY_SECONDS: Final = 75.0
TRIAL_SECONDS: Final = 135.0


class _Stored(msgspec.Struct):
    """The part of an answer to a POST that every form of it has."""

    task_id: UUID | None = None
    reservation_id: UUID | None = None


class StewardClient(
    ArchiveClient, NodeClient, PresetClient, ReportClient, StreamClient, TokenClient
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
        parameters = {"namespace": namespace, "requester": requester}
        body = await self.send("POST", "/tasks", task, parameters, command_id=command_id)
        stored = msgspec.json.decode(body, type=_Stored)
        if stored.task_id is None:
            raise self.unreadable("POST /tasks", "no task_id")
        return stored.task_id

    async def validate_task(self, task: bytes) -> TaskPlan:
        """What the task would become; nothing is stored."""
        return await self.post("/tasks/validate", task, TaskPlan)

    async def check(self, question: Check) -> CheckView:
        """Whether something would work, by rule; nothing is reserved or stored."""
        return await self.post("/checks", question, CheckView)

    async def tasks(
        self,
        *,
        namespace: str | None = None,
        states: Iterable[TaskState] = (),
        archived: bool = False,
        limit: int | None = None,
    ) -> tuple[TaskView, ...]:
        """Tasks, newest first; all of them without a `limit`, with `archived` those too."""
        wanted = {"namespace": namespace, "state": _joined(states), **_archived(archived)}
        return await self.listed("/tasks", TaskList, lambda page: page.tasks, wanted, limit)

    async def task(self, task_id: UUID) -> TaskView:
        return await self.get(f"/tasks/{task_id}", TaskView)

    async def cancel_task(self, task_id: UUID, reason: str = "") -> None:
        """Have a task stopped; it is over when its state says so."""
        await self.send("POST", f"/tasks/{task_id}/cancel", {"reason": reason})

    async def pause_task(self, task_id: UUID) -> TaskView:
        """Start no further experiment of a task."""
        return self.decoded(await self.send("POST", f"/tasks/{task_id}/pause"), TaskView)

    async def resume_task(self, task_id: UUID) -> TaskView:
        """Start experiments of a paused task again."""
        return self.decoded(await self.send("POST", f"/tasks/{task_id}/resume"), TaskView)

    async def delete_task(self, task_id: UUID) -> None:
        """Delete a finished task with its experiments and their measurements."""
        await self.send("DELETE", f"/tasks/{task_id}")

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
        of archived tasks only with their `task_id`, or `archived`. Without `monitoring` answered
        faster.
        """
        path = f"/tasks/{task_id}/experiments"
        wanted: dict[str, str | None] = {
            "state": _joined(states),
            "node_id": node_id,
            "monitoring": str(monitoring).lower(),
        }
        if task_id is None:
            path, wanted = "/experiments", {**wanted, "namespace": namespace, **_archived(archived)}
        return await self.listed(path, ExperimentList, lambda page: page.experiments, wanted, limit)

    async def experiment(self, experiment_id: UUID) -> ExperimentView:
        """One experiment with its measurements."""
        return await self.get(f"/experiments/{experiment_id}", ExperimentView)

    async def delete_experiment(self, experiment_id: UUID) -> None:
        """Delete one experiment of a finished task with its measurements."""
        await self.send("DELETE", f"/experiments/{experiment_id}")

    async def experiment_document(self, experiment_id: UUID) -> dict[str, Any]:
        """One experiment as plain data, with everything that the gateway joins to it."""
        return await self.get(f"/experiments/{experiment_id}", dict[str, Any])

    async def experiment_log(
        self,
        experiment_id: UUID,
        *,
        attempt: int | None = None,
        offset: int | None = None,
        lines: int = 200,
    ) -> LogChunk:
        """The last lines that an attempt's engine wrote, or those from a byte offset on."""
        parameters = {"attempt": attempt, "offset": offset, "lines": lines}
        return await self.get(f"/experiments/{experiment_id}/logs", LogChunk, parameters)

    async def gpus(self, *, node_id: str | None = None, use_cache: bool = True) -> GpuList:
        """Every GPU with its last reading; `use_cache=False` has the nodes read anew."""
        parameters = {"node_id": node_id, "use_cache": None if use_cache else "false"}
        return await self.get("/gpus", GpuList, parameters)

    async def nodes(self) -> NodeList:
        return await self.get("/nodes", NodeList)

    async def allocation_map(self, node_id: str) -> GpuAllocMap:
        """What is held on a node's devices."""
        return await self.get(f"/nodes/{node_id}/gpu-alloc-map", GpuAllocMap)

    async def estimate(self, task_config: Mapping[str, Any]) -> EstimateView:
        """GPUs and memory that a task configuration needs."""
        return await self.post("/estimate", task_config, EstimateView)

    async def availability(
        self, request: GpuRequest, *, wait_seconds: float = 0.0
    ) -> AvailabilityView:
        """Whether a request would be granted now, or within `wait_seconds`; reserves nothing."""
        answer = await self.send(
            "POST",
            "/availability",
            request,
            {"wait_seconds": f"{wait_seconds:.3f}"} if wait_seconds else None,
            timeout_seconds=wait_seconds + self.timeout_seconds,
        )
        return self.decoded(answer, AvailabilityView)

    async def await_availability(
        self, request: GpuRequest, *, timeout_seconds: float
    ) -> AvailabilityView:
        """The answer as soon as the request would be granted, or as it is at the time-out.

        What the fleet can never give is answered at once. The gateway holds each question until
        there is something to answer; nothing is polled.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            left = max(0.0, min(deadline - time.monotonic(), LONGEST_POLL_SECONDS))
            view = await self.availability(request, wait_seconds=left)
            if view.available or view.impossible or time.monotonic() >= deadline:
                return view

    async def cluster_status(self) -> ClusterStatus:
        """Every GPU of every node, as node selection sees it."""
        return await self.get("/cluster/gpus", ClusterStatus)

    async def node_summaries(
        self, utilization_threshold: float = 30.0, memory_threshold: float = 50.0
    ) -> NodeSummaries:
        """GPUs summed up by node; idle are those below both thresholds."""
        thresholds = _thresholds(utilization_threshold, memory_threshold)
        return await self.get("/cluster/nodes", NodeSummaries, thresholds)

    async def select_node(
        self,
        required_gpus: int,
        utilization_threshold: float = 30.0,
        memory_threshold: float = 50.0,
    ) -> NodeSelection:
        """The node that a deployment would get now; none leaves the choice to Kubernetes."""
        thresholds = _thresholds(utilization_threshold, memory_threshold)
        parameters: Parameters = {"required_gpus": required_gpus, **thresholds}
        return await self.get("/select-node", NodeSelection, parameters)

    async def select_node_for(self, request: GpuRequest) -> NodeSelection:
        """The node that a deployment with this request would get now."""
        return await self.post("/select-node", request, NodeSelection)

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
        body = await self.send("POST", "/reservations", document)
        return msgspec.json.decode(body, type=_Stored).reservation_id or reservation_id

    async def reservations(
        self,
        *,
        states: Iterable[ReservationState] = (),
        namespace: str | None = None,
        node_id: str | None = None,
        limit: int | None = None,
    ) -> tuple[ReservationView, ...]:
        """Reservations, newest first; all of them without a `limit`."""
        wanted = {"state": _joined(states), "namespace": namespace, "node_id": node_id}
        return await self.listed(
            "/reservations", ReservationList, lambda page: page.reservations, wanted, limit
        )

    async def reservation(self, reservation_id: UUID) -> ReservationView:
        return await self.get(f"/reservations/{reservation_id}", ReservationView)

    async def await_reservation(
        self, reservation_id: UUID, *, timeout_seconds: float
    ) -> ReservationView:
        """The reservation as soon as it is not queued any more, or as it is at the time-out.

        The gateway holds each request until there is something to answer; nothing is polled.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            left = max(0.0, min(deadline - time.monotonic(), LONGEST_POLL_SECONDS))
            view = await self.get(
                f"/reservations/{reservation_id}",
                ReservationView,
                {"wait_seconds": f"{left:.3f}"},
                timeout_seconds=left + self.timeout_seconds,
            )
            if view.state is not ReservationState.QUEUED or time.monotonic() >= deadline:
                return view

    async def renew_reservation(
        self, reservation_id: UUID, epoch: int, *, activate: bool = False
    ) -> Accepted:
        """Renew a lease; `activate` before anything starts on the devices."""
        document = {"epoch": epoch, "activate": activate}
        return await self.post(f"/reservations/{reservation_id}/renew", document, Accepted)

    async def release_reservation(
        self, reservation_id: UUID, epoch: int, *, stopped: bool = True
    ) -> None:
        """Give the devices back; `stopped` says that nothing runs on them any more."""
        parameters = {"epoch": epoch, "stopped": "true" if stopped else "false"}
        await self.send("DELETE", f"/reservations/{reservation_id}", None, parameters)

    async def exempt_reservation(
        self, reservation_id: UUID, *, until_at: datetime, reason: str
    ) -> None:
        """Never find it idle before a time."""
        body = {"until_at": until_at.isoformat(), "reason": reason}
        await self.send("POST", f"/reservations/{reservation_id}/idle-exemption", body)

    async def cancel_reservation(self, reservation_id: UUID) -> None:
        """Withdraw a reservation in whatever state it is."""
        await self.send("DELETE", f"/reservations/{reservation_id}")

    async def explain_reservation(self, reservation_id: UUID) -> Explanation:
        """Every reason why a reservation waits, what would help, when it is expected to start."""
        return await self.get(f"/reservations/{reservation_id}/explain", Explanation)

    async def what_if(self, reservation_id: UUID, request: GpuRequest) -> AvailabilityView:
        """Whether a waiting reservation would be granted now with this request instead."""
        return await self.post(f"/reservations/{reservation_id}/what-if", request, AvailabilityView)

    async def decisions(
        self, *, after_id: int = 0, reservation_id: UUID | None = None, limit: int = 100
    ) -> DecisionList:
        """Recorded decisions with what they were made on, oldest first."""
        parameters = {"after_id": after_id, "limit": limit, "reservation_id": reservation_id}
        return await self.get("/decisions", DecisionList, parameters)

    async def try_policy(
        self, policy: TriedPolicy, *, since_at: datetime | None = None
    ) -> PolicyTrial:
        """What another policy would have made of the recorded requests, by default of a week."""
        wanted = {"policy": policy.value, "since_at": since_at.isoformat() if since_at else None}
        return await self.get(
            "/decisions/what-if-policy", PolicyTrial, wanted, timeout_seconds=TRIAL_SECONDS
        )

    async def replay(
        self, *, from_id: int | None = None, reservation_id: UUID | None = None, limit: int = 100
    ) -> Replay:
        """Recorded decisions, decided again: whether each comes out the same."""
        parameters = {"from_id": from_id, "limit": limit, "reservation_id": reservation_id}
        return await self.get(
            "/decisions/replay", Replay, parameters, timeout_seconds=REPLAY_SECONDS
        )

    async def drifts(self, node_id: str | None = None, *, ended: bool = False) -> DriftList:
        """Where reserved, running and physically used disagree, oldest first."""
        wanted = {"node_id": node_id, "ended": str(ended).lower()}
        return DriftList(
            drifts=await self.listed("/drifts", DriftList, lambda page: page.drifts, wanted)
        )


def _thresholds(utilization: float, memory: float) -> dict[str, str]:
    return {"utilization_threshold": str(utilization), "memory_threshold": str(memory)}


def _joined(states: Iterable[StrEnum]) -> str | None:
    return ",".join(state.value for state in states) or None


def _archived(archived: bool) -> dict[str, str]:
    return {"archived": "true"} if archived else {}
