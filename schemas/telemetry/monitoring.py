"""Questions that a node's telemetry agent answers: its readings, picked, ranked or watched."""

from typing import Annotated, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Count,
    DeviceUuid,
    NodeId,
    PositiveSeconds,
    Query,
    Seconds,
    UtcDatetime,
    View,
)
from schemas.telemetry.readings import BurstSeconds, DeviceFacts, GpuReading, Source


class Spread(Struct, frozen=True, kw_only=True):
    """Smallest, largest and mean of the known readings; all None when every reading was unknown."""

    min: float | None = None
    max: float | None = None
    mean: float | None = None


class SampledSpread(Struct, frozen=True, kw_only=True):
    """A spread with the number of readings that were not unknown."""

    min: float | None = None
    max: float | None = None
    mean: float | None = None
    samples: Count = 0


class GpuStats(Struct, frozen=True, kw_only=True):
    """One GPU over a window. `power_limit_w` shows whether its power was capped meanwhile."""

    name: str
    uuid: DeviceUuid
    utilization: SampledSpread
    memory_used_mb: Spread
    memory_usage_percent: Spread
    temperature_c: Spread
    power_draw_w: Spread
    power_limit_w: Spread = Spread()


class GetAgent(Query, frozen=True, kw_only=True, tag="telemetry.agent"):
    """Whether a node's GPUs can be read, and how. Answered by `AgentView`."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId


class AgentView(View, frozen=True, kw_only=True, tag="telemetry.agent_view"):
    """An agent. `available`: a source is open and the newest reading succeeded.

    `interval_seconds` is the present one, shorter than the configured while a burst or a
    monitoring asks for it.
    """

    node_id: NodeId
    boot_id: UUID
    source: Source
    available: bool
    message: str
    gpu_count: Count
    sequence: Count
    interval_seconds: PositiveSeconds


class GetGpu(Query, frozen=True, kw_only=True, tag="telemetry.gpu_info"):
    """One GPU by its index in its node. Answered by `GpuDetail`; refused with not_found."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    index: Count
    use_cache: bool = True


class GpuDetail(View, frozen=True, kw_only=True, tag="telemetry.gpu_detail"):
    """Facts and newest reading; `reading` None if the GPU does not answer."""

    node_id: NodeId
    observed_at: UtcDatetime
    facts: DeviceFacts
    reading: GpuReading | None


class StartMonitoring(Query, frozen=True, kw_only=True, tag="telemetry.start_monitoring"):
    """Watch a node until stopped, or for `max_seconds` at most. Answered by `MonitoringView`.

    The requester chooses the id; the same id again answers with the running one.
    """

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    monitoring_id: UUID
    interval_seconds: BurstSeconds = 1.0
    max_seconds: Annotated[float, Meta(gt=0, le=86_400)] = 3600.0


class StopMonitoring(Query, frozen=True, kw_only=True, tag="telemetry.stop_monitoring"):
    """End it and report what was measured. Answered by `MonitoringView`, again and again for ten
    minutes.

    Refused with not_found afterwards, and after a restart of the agent.
    """

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    monitoring_id: UUID


class MonitoringView(View, frozen=True, kw_only=True, tag="telemetry.monitoring"):
    """A monitoring, running or ended. `sample_count` counts ticks, `missed_count` those that
    failed or came too late.
    """

    node_id: NodeId
    monitoring_id: UUID
    running: bool
    started_at: UtcDatetime
    monitoring_duration_seconds: Seconds
    sample_count: Count
    missed_count: Count
    gpu_stats: dict[str, GpuStats] = {}
