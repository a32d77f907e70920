"""The step of shares that a made-up fleet's file says, for the scheduler that serves it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from schemas.gpus.gpu_request import WHOLE

QUANTUM_VARIABLE: Final = "GPUSTEWARD_SCHEDULER_SHARE_QUANTUM"


def quantum_environment(fleet: Path | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the scheduler's setting for a file's `quantum_size`, unless its operator says one.

    A file whose shares are not GPUs counts in others than the scheduler, so that its step is only
    a label of its node. What is wrong with a file the agent says, which reads it whole.
    """
    if fleet is None or QUANTUM_VARIABLE in environment:
        return {}
    try:
        fleet_document = tomllib.loads(fleet.read_text())
    except (OSError, ValueError):
        return {}
    quantum = fleet_document.get("quantum_size")
    if not isinstance(quantum, int | float) or {"unit_mem", "unit_proc"} & fleet_document.keys():
        return {}
    hundredths = round(quantum * WHOLE)
    if hundredths < 1 or WHOLE % hundredths or hundredths / WHOLE != quantum:
        return {}
    return {QUANTUM_VARIABLE: f"{quantum:g}"}
