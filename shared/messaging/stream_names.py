"""What the streams are called, for whoever does without a client of the bus."""

from typing import Final

SAMPLES: Final = "GPUSTEWARD_SAMPLES"
ENGINE_SAMPLES: Final = "GPUSTEWARD_ENGINE_SAMPLES"
EVENTS: Final = "GPUSTEWARD_EVENTS"
NAMES: Final = (SAMPLES, ENGINE_SAMPLES, EVENTS)
