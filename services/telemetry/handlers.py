"""Queries and commands that an agent answers."""

from dataclasses import dataclass, field

from schemas.errors import ErrorCode, Reply
from schemas.gpus.mig import ChangeMig
from schemas.telemetry.monitoring import (
    AgentView,
    GetAgent,
    GetGpu,
    GpuDetail,
    MonitoringView,
    StartMonitoring,
    StopMonitoring,
)
from schemas.telemetry.readings import GetSnapshot, GpuSampled, SetBurst, SetPowerLimit, Source
from services.telemetry.agent import Agent
from services.telemetry.idempotency import AnsweredCommands
from services.telemetry.mig.changes import MigChanges
from services.telemetry.power.limits import PowerLimits
from shared.errors import RefusedError
from shared.messaging.bus import Route, command_route, query_route


@dataclass(frozen=True, slots=True)
class Handlers:
    agent: Agent
    power: PowerLimits
    mig: MigChanges
    answered: AnsweredCommands = field(default_factory=AnsweredCommands)

    async def snapshot(self, query: GetSnapshot) -> GpuSampled:
        """A reading begun now, or a cached one where the query allows it."""
        return await self.agent.snapshot(
            use_cache=query.use_cache, released=query.released_reservation_id
        )

    async def agent_view(self, query: GetAgent) -> AgentView:
        """Return whether and how the GPUs can be read."""
        source, failure = self.agent.devices.source, self.agent.devices.failure
        newest = self.agent.newest
        count = 0 if newest is None else len(newest.gpus)
        if failure is None and source is Source.NONE:
            failure = "no GPU was found on this host"
        return AgentView(
            node_id=query.node_id,
            boot_id=self.agent.publisher.boot_id,
            source=source,
            available=failure is None,
            message=failure or f"{count} GPUs are read by {source}",
            gpu_count=count,
            sequence=self.agent.sequence,
            interval_seconds=self.agent.current_interval_seconds,
        )

    async def gpu(self, query: GetGpu) -> GpuDetail:
        """Return one device, even if it does not answer at present."""
        sample = await self.agent.snapshot(use_cache=query.use_cache)
        facts = next((f for f in self.agent.devices.facts if f.index == query.index), None)
        if facts is None:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"no GPU {query.index} on node {query.node_id}",
                path="$.index",
            )
        return GpuDetail(
            node_id=query.node_id,
            observed_at=sample.observed_at,
            facts=facts,
            reading=next((gpu for gpu in sample.gpus if gpu.uuid == facts.uuid), None),
        )

    async def start_monitoring(self, query: StartMonitoring) -> MonitoringView:
        return self.agent.start_monitoring(query)

    async def stop_monitoring(self, query: StopMonitoring) -> MonitoringView:
        return self.agent.stop_monitoring(query.monitoring_id)

    async def burst(self, command: SetBurst) -> Reply:
        async def apply() -> None:
            self.agent.burst(command)

        return await self.answered.once(command, apply)

    async def set_power_limit(self, command: SetPowerLimit) -> Reply:
        return await self.answered.once(command, lambda: self.power.apply(command))

    async def change_mig(self, command: ChangeMig) -> Reply:
        return await self.answered.once(command, lambda: self.mig.apply(command))


def build_routes(handlers: Handlers, node_id: str) -> list[Route]:
    return [
        query_route(handlers.snapshot, GetSnapshot, key=node_id),
        query_route(handlers.agent_view, GetAgent, key=node_id),
        query_route(handlers.gpu, GetGpu, key=node_id),
        query_route(handlers.start_monitoring, StartMonitoring, key=node_id),
        query_route(handlers.stop_monitoring, StopMonitoring, key=node_id),
        command_route(handlers.burst, SetBurst, key=node_id),
        command_route(handlers.set_power_limit, SetPowerLimit, key=node_id),
        command_route(handlers.change_mig, ChangeMig, key=node_id),
    ]
