"""Measurements of experiments and history of GPUs."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Count,
    DeviceUuid,
    Event,
    ListQuery,
    ListView,
    NodeId,
    Percent,
    PositiveInt,
    Query,
    Seconds,
    UtcDatetime,
    View,
)
from schemas.gpus.device_grant import DeviceGrant
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.dataset import DatasetUse
from schemas.task.trace import TraceUse
from schemas.telemetry.monitoring import GpuStats


class EnergySource(StrEnum):
    """Where an energy comes from: the devices' counters, or their power over time."""

    COUNTER = "counter"
    POWER = "power"
    MIXED = "mixed"  # the one for some devices, the other for the rest


class Percentiles(Struct, frozen=True, kw_only=True):
    """Of the known readings, between neighbours by proportion; None when all were unknown."""

    p50: float | None = None
    p95: float | None = None


class CoTenant(Struct, frozen=True, kw_only=True):
    """Who else had memory on a GPU, and for how long.

    Another reservation, or, without one, a process that no reservation is known of.
    """

    seconds: Seconds
    reservation_id: UUID | None = None
    name: str | None = None


class GpuDetails(Struct, frozen=True, kw_only=True):
    """More of one GPU over a window than `GpuStats`. None is unknown.

    `throttled_seconds` leaves out reasons that say nothing of trouble, such as `gpu_idle`;
    `throttle_reasons` has the seconds of each of the others. `ecc_*` count errors, `xids` are those
    that the driver reported, in order.
    """

    coverage_percent: Percent
    longest_gap_seconds: Seconds
    utilization: Percentiles = Percentiles()
    memory_used_mb: Percentiles = Percentiles()
    temperature_c: Percentiles = Percentiles()
    power_draw_w: Percentiles = Percentiles()
    energy_wh: float | None = None
    energy_source: EnergySource | None = None
    throttled_seconds: Seconds | None = None
    throttle_reasons: dict[str, Seconds] = {}
    ecc_corrected: Count | None = None
    ecc_uncorrected: Count | None = None
    xids: tuple[int, ...] = ()
    co_tenants: tuple[CoTenant, ...] = ()


class GpuMonitoring(Struct, frozen=True, kw_only=True):
    """An experiment's GPUs over its measured runs, or over all of it, as `phase` says.

    `sample_count` counts ticks; keys of `gpu_stats` and `gpu_details` are the device index,
    `node/index` when several nodes took part. `coverage_percent` is how much of the window has
    samples, `missing_ticks` how many their numbers say are missing; `energy_wh` None if no device
    reported power. `tokens_per_joule` are output tokens, `cost_per_million_tokens` too, in the
    currency of the prices; None: a GPU model without one. With too little coverage the numbers are
    not `trusted`; None: a release that did not judge. `devices` are those that the pod of an
    experiment in a cluster had, where its node's agent reported it.
    """

    monitoring_duration_seconds: Seconds
    sample_count: Count
    gpu_stats: dict[str, GpuStats]
    coverage_percent: Percent
    energy_wh: float | None
    phase: str
    simulated: bool
    gpu_details: dict[str, GpuDetails] = {}
    energy_source: EnergySource | None = None
    tokens_per_joule: float | None = None
    cost_per_million_tokens: float | None = None
    longest_gap_seconds: Seconds = 0.0
    missing_ticks: Count = 0
    trusted: bool | None = None
    untrusted_because: str = ""
    devices: tuple[DeviceGrant, ...] = ()


class ExperimentSummarized(Event, frozen=True, kw_only=True, tag="results.experiment_summarized"):
    """The measurements of a succeeded attempt are stored, joined to its GPU samples.

    `peak_memory_mb` is the most that one of its GPUs had in use over the whole run; None: unknown.
    `driver_versions` are those of its nodes, see `SummaryView`.
    """

    key_field: ClassVar[str | None] = "experiment_id"
    experiment_id: UUID
    attempt_id: UUID
    task_id: UUID
    version: PositiveInt
    metrics: BenchmarkMetrics
    gpu_monitoring: GpuMonitoring
    peak_memory_mb: Count | None = None
    driver_versions: dict[NodeId, str] = {}


class GetSummary(Query, frozen=True, kw_only=True, tag="results.get_summary"):
    """An experiment's measurements.

    Answered by `SummaryView`, refused with `not_found` until there are some.
    """

    experiment_id: UUID


class SummaryView(View, frozen=True, kw_only=True, tag="results.summary"):
    """The stored measurements. `benchmark` is the whole stored `BenchmarkResult` as plain data;
    lists leave it out. `whole_run` reaches from the attempt's start to its end; None: a release
    that did not keep it. `driver_versions` are those that the attempt's nodes reported last before
    its end. `image_digest` as in `AttemptFinished`, `dataset` and `trace` as in
    `benchmark`.
    """

    experiment_id: UUID
    attempt_id: UUID
    task_id: UUID
    version: PositiveInt
    metrics: BenchmarkMetrics
    gpu_monitoring: GpuMonitoring
    benchmark: dict[str, Any] = {}
    whole_run: GpuMonitoring | None = None
    driver_versions: dict[NodeId, str] = {}
    image_digest: str | None = None
    dataset: DatasetUse | None = None
    trace: TraceUse | None = None


class GpuMemoryTrend(Struct, frozen=True, kw_only=True):
    """The memory of one GPU in the minute before its attempt failed, as far as it was sampled.

    `is_growing`: its peak is over its start by more than 2 % of the GPU's memory.
    """

    node_id: NodeId
    index: Count
    name: str
    start_mb: Count
    peak_mb: Count
    last_mb: Count
    total_mb: Count | None
    is_growing: bool
    simulated: bool


class GetMemoryTrend(Query, frozen=True, kw_only=True, tag="results.get_memory_trend"):
    """What the memory of an attempt's GPUs did before it failed for want of memory.

    Answered by `MemoryTrendView`, refused with `not_found` where it did not, or no sample is kept.
    """

    attempt_id: UUID


class MemoryTrendView(View, frozen=True, kw_only=True, tag="results.memory_trend"):
    """Of the minute up to `until_at`, when the attempt began to be taken down."""

    attempt_id: UUID
    until_at: UtcDatetime
    gpus: tuple[GpuMemoryTrend, ...]


class GetRequests(Query, frozen=True, kw_only=True, tag="results.get_requests"):
    """The requests of an experiment's level, as its newest summary's benchmark counts them from 0.

    Answered by `RequestsView`, refused with `not_found` where none are stored.
    """

    experiment_id: UUID
    level: Count = 0


class RequestsView(View, frozen=True, kw_only=True, tag="results.requests"):
    """Measured requests, completed ones first, as columns of equal length; None is unknown.

    Times in seconds. With an `error`, `e2e_latency` is how long the request took to fail. Of very
    many only one in `one_in` is kept. `num_first_tokens` came with the first piece.
    """

    experiment_id: UUID
    attempt_id: UUID
    level: Count
    scenario: str
    num_concurrency: PositiveInt
    one_in: PositiveInt
    ttft: tuple[float | None, ...]
    e2e_latency: tuple[float | None, ...]
    num_input_tokens: tuple[int | None, ...]
    num_output_tokens: tuple[int | None, ...]
    error: tuple[str | None, ...]
    turn: tuple[int | None, ...] = ()
    num_first_tokens: tuple[int, ...] = ()


class ListSamples(ListQuery, frozen=True, kw_only=True, tag="results.list_samples"):
    """The samples of an experiment's newest summary, some of them outside of its windows.

    Answered by `SampleList`, refused with `not_found` where there is no summary.
    """

    experiment_id: UUID
    limit: Annotated[int, Meta(ge=1, le=5000)] = 5000


class SampledDevice(Struct, frozen=True, kw_only=True):
    """A GPU that samples are of."""

    node_id: NodeId
    uuid: DeviceUuid
    index: Count
    name: str
    simulated: bool


class SampleList(ListView, frozen=True, kw_only=True, tag="results.samples"):
    """Samples by device and time, as columns of equal length; None is unknown.

    `device` counts in `devices`; times are microseconds since 1970. `interval_seconds` is how often
    the agent sampled, `boot_id` and `sequence` number its ticks.
    """

    attempt_id: UUID
    devices: tuple[SampledDevice, ...]
    device: tuple[int, ...]
    observed_at_us: tuple[int, ...]
    boot_id: tuple[UUID, ...]
    sequence: tuple[int, ...]
    interval_seconds: tuple[float, ...]
    utilization_percent: tuple[float | None, ...]
    memory_total_mb: tuple[int | None, ...]
    memory_used_mb: tuple[int | None, ...]
    temperature_c: tuple[float | None, ...]
    power_draw_w: tuple[float | None, ...]
    power_limit_w: tuple[float | None, ...]
    energy_mj: tuple[int | None, ...]
    ecc_corrected: tuple[int | None, ...]
    ecc_uncorrected: tuple[int | None, ...]


class ListSummaries(Query, frozen=True, kw_only=True, tag="results.list_summaries"):
    """The measurements of a task's experiments, or only of those after `after_experiment_id`.

    Answered by `SummaryList`.
    """

    task_id: UUID
    after_experiment_id: UUID | None = None


class SummaryList(ListView, frozen=True, kw_only=True, tag="results.summaries"):
    """Newest summaries by experiment id, their `benchmark` left out.

    `next_after_experiment_id` is what to ask for next; None: these were the last.
    """

    summaries: tuple[SummaryView, ...]
    next_after_experiment_id: UUID | None = None


class GetReport(Query, frozen=True, kw_only=True, tag="results.report"):
    """Usage per namespace. Answered by `ReportView`."""

    start_at: UtcDatetime
    end_at: UtcDatetime


class UsageRow(Struct, frozen=True, kw_only=True):
    """What one namespace's experiments used."""

    namespace: str
    experiments: Count
    gpu_hours: float
    energy_wh: float | None


class ReportView(View, frozen=True, kw_only=True, tag="results.report_view"):
    """Usage per namespace, largest first."""

    rows: tuple[UsageRow, ...]
