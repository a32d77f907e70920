"""Names of the streams, for the table of permissions: importing them loads no NATS client."""

from typing import Final

SAMPLES: Final = "GPUSTEWARD_SAMPLES"
ENGINE_SAMPLES: Final = "GPUSTEWARD_ENGINE_SAMPLES"
EVENTS: Final = "GPUSTEWARD_EVENTS"
NAMES: Final = (SAMPLES, ENGINE_SAMPLES, EVENTS)
