"""Receives what nodes publish between two changes of the ledger."""

from dataclasses import dataclass

from schemas.cluster.nodes import ClusterChanged
from schemas.executor.attempts import ExecutorReported
from schemas.executor.engine_samples import EngineSampled
from schemas.telemetry.readings import GpuSampled, InventoryReported
from services.scheduler.observations.cluster_views import ClusterViews
from services.scheduler.observations.engine_activities import EngineActivities
from services.scheduler.observations.latest_readings import LatestReadings
from services.scheduler.observations.node_liveness import NodeLiveness
from shared.messaging.bus import Bus


@dataclass(frozen=True, slots=True)
class SampleListener:
    """Every scheduler receives all of it, without replay; only the leader's decisions use it."""

    bus: Bus
    readings: LatestReadings
    liveness: NodeLiveness
    clusters: ClusterViews
    engines: EngineActivities

    async def subscribe(self) -> None:
        """Begin to receive; the connection is open."""
        await self.bus.listen(GpuSampled, self._on_sample)
        await self.bus.listen(EngineSampled, self._on_engine)
        await self.bus.listen(InventoryReported, self._on_inventory)
        await self.bus.listen(ExecutorReported, self._on_executor)
        await self.bus.listen(ClusterChanged, self.clusters.observe)

    async def _on_sample(self, sample: GpuSampled) -> None:
        self.liveness.record_agent(sample.node_id)
        self.readings.observe(sample)

    async def _on_engine(self, sample: EngineSampled) -> None:
        self.engines.observe(sample)

    async def _on_inventory(self, event: InventoryReported) -> None:
        self.liveness.record_agent(event.node_id)

    async def _on_executor(self, event: ExecutorReported) -> None:
        self.liveness.record_executor(event.executor_id)
