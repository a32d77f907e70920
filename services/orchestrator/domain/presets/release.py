"""Presets of parameters that come with this release: where to begin, by engine and by aim."""

from typing import Final

import msgspec

from schemas.orchestrator.presets import Preset, PresetView
from shared.engines.table import PROFILES

_AIMS: Final = {
    "memory-efficient": "Memory Efficient: few sequences and a small part of the memory",
    "high-throughput": "High Throughput: many sequences and tokens at once",
    "low-latency": "Low Latency: few sequences at once, each prompt in few steps",
    "balanced": "Balanced: between the two",
}
RELEASE_PRESETS: Final = {
    f"{aim}-{engine}": PresetView(
        namespace=None,
        name=f"{aim}-{engine}",
        description=_AIMS[aim],
        engine=engine,
        parameters=msgspec.convert({"name": aim, "parameters": parameters}, Preset).parameters,
    )
    for engine, profile in PROFILES.items()
    for aim, parameters in profile.presets.items()
}
