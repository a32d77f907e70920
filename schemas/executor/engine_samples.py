"""What engines report of themselves in attempts; None is what an engine does not report."""

from uuid import UUID

from msgspec import Struct

from schemas.base import Count, Epoch, PositiveSeconds, Sample, Token, UtcDatetime
from schemas.executor.attempts import AttemptPhase


class EngineReading(Struct, frozen=True, kw_only=True, gc=False):
    """An engine's `/metrics` at one moment, all its replicas together.

    Requests and the share of its KV cache in use (of the fullest replica) are of that moment, the
    rest counts since the engine's start. `accept_length` is how many tokens a step of speculative
    decoding gave in the mean.
    """

    running: float | None = None
    waiting: float | None = None
    kv_cache_percent: float | None = None
    preemptions: float | None = None
    prefix_queried_tokens: float | None = None
    prefix_hit_tokens: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    accept_length: float | None = None


class EngineSampled(Sample, frozen=True, kw_only=True, tag="telemetry.engine_sampled"):
    """An attempt's engine, asked by its executor. Identity: attempt, sequence.

    `engine` is whose names it speaks; None: it has no metrics that are known, which is published
    once.
    """

    experiment_id: UUID
    attempt_id: UUID
    task_id: UUID
    reservation_id: UUID
    epoch: Epoch
    sequence: Count
    observed_at: UtcDatetime
    interval_seconds: PositiveSeconds
    phase: AttemptPhase
    engine: Token | None = None
    reading: EngineReading = EngineReading()
