"""The history of engines, as they reported it in attempts."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from schemas.base import ListQuery, ListView, Query, Seconds, UtcDatetime, View
from schemas.executor.attempts import AttemptPhase
from schemas.results.series import SeriesPoint


class EngineMetric(StrEnum):
    """What an engine's history shows; rates are over the time between two samples."""

    RUNNING = "running"
    WAITING = "waiting"
    KV_CACHE_PERCENT = "kv_cache_percent"
    PREEMPTIONS_PER_S = "preemptions_per_s"
    PREFIX_HIT_PERCENT = "prefix_hit_percent"
    PROMPT_TOKENS_PER_S = "prompt_tokens_per_s"
    GENERATION_TOKENS_PER_S = "generation_tokens_per_s"
    ACCEPT_LENGTH = "accept_length"


class GetEngineSeries(Query, frozen=True, kw_only=True, tag="results.engine_series"):
    """History of an experiment's engine, in at most `points` buckets of each metric.

    Of its newest attempt, all of it unless times are given. Answered by `EngineSeriesView`.
    """

    experiment_id: UUID
    start_at: UtcDatetime | None = None
    end_at: UtcDatetime | None = None
    points: Annotated[int, Meta(ge=1, le=5000)] = 300


class EngineSeriesView(View, frozen=True, kw_only=True, tag="results.engine_series_view"):
    """A metric that the engine does not report is absent, as is a bucket without a known value.

    `engine` is whose names it speaks. None: it has no metrics that are known, or, without an
    `attempt_id`, none have come.
    """

    experiment_id: UUID
    attempt_id: UUID | None = None
    engine: str | None = None
    bucket_seconds: Seconds = 0.0
    series: dict[EngineMetric, tuple[SeriesPoint, ...]] = {}


class ListEngineSamples(ListQuery, frozen=True, kw_only=True, tag="results.list_engine_samples"):
    """What the newest attempt's engine reported. Answered by `EngineSampleList`."""

    experiment_id: UUID
    limit: Annotated[int, Meta(ge=1, le=5000)] = 5000


class EngineSampleList(ListView, frozen=True, kw_only=True, tag="results.engine_samples"):
    """By sequence, as columns of equal length, as `EngineReading` has them.

    Times are microseconds since 1970.
    """

    attempt_id: UUID | None = None
    engine: str | None = None
    sequence: tuple[int, ...] = ()
    observed_at_us: tuple[int, ...] = ()
    phase: tuple[AttemptPhase, ...] = ()
    running: tuple[float | None, ...] = ()
    waiting: tuple[float | None, ...] = ()
    kv_cache_percent: tuple[float | None, ...] = ()
    preemptions: tuple[float | None, ...] = ()
    prefix_queried_tokens: tuple[float | None, ...] = ()
    prefix_hit_tokens: tuple[float | None, ...] = ()
    prompt_tokens: tuple[float | None, ...] = ()
    generation_tokens: tuple[float | None, ...] = ()
    accept_length: tuple[float | None, ...] = ()
