"""The streams, declared once: two services that spelled one differently would rewrite it."""

from typing import Final

from nats.js.api import DiscardPolicy, StorageType, StreamConfig

from schemas.base import PREFIX, pattern_for
from schemas.executor.engine_samples import EngineSampled
from schemas.telemetry.readings import GpuSampled
from shared.messaging import stream_names

HOUR: Final = 3600.0
DUPLICATE_WINDOW_SECONDS: Final = 120.0
_EVENT_SUBJECTS: Final = (
    *(
        f"{PREFIX}.evt.{owner}.>"
        for owner in ("scheduler", "orchestrator", "executor", "results", "gateway")
    ),
    f"{PREFIX}.evt.telemetry.inventory_reported.*",
    f"{PREFIX}.evt.telemetry.health_changed.*",
)

SAMPLES: Final = StreamConfig(
    name=stream_names.SAMPLES,
    subjects=[pattern_for(GpuSampled)],
    storage=StorageType.FILE,
    max_age=HOUR,
    max_bytes=1 << 30,
    discard=DiscardPolicy.OLD,
    duplicate_window=DUPLICATE_WINDOW_SECONDS,
)
ENGINE_SAMPLES: Final = StreamConfig(
    name=stream_names.ENGINE_SAMPLES,
    subjects=[pattern_for(EngineSampled)],
    storage=StorageType.FILE,
    max_age=HOUR,
    max_bytes=1 << 28,
    discard=DiscardPolicy.OLD,
    duplicate_window=DUPLICATE_WINDOW_SECONDS,
)
EVENTS: Final = StreamConfig(
    name=stream_names.EVENTS,
    subjects=list(_EVENT_SUBJECTS),
    storage=StorageType.FILE,
    max_age=7 * 24 * HOUR,
    discard=DiscardPolicy.OLD,
    duplicate_window=DUPLICATE_WINDOW_SECONDS,
)
STREAMS: Final = (SAMPLES, ENGINE_SAMPLES, EVENTS)
