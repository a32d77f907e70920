"""Why a task tries no further configuration, for people: the command line, reports and the web page
say it in these words.
"""

from collections.abc import Mapping
from typing import Final

from schemas.task.task_file import StopReason

STOPPED: Final[Mapping[StopReason, str]] = {
    StopReason.SPACE_EXHAUSTED: "every configuration was tried",
    StopReason.MAX_ITERATIONS: "as many were tried as max_iterations allows",
    StopReason.MAX_GPU_HOURS: "the GPU-hours are used up",
    StopReason.MAX_COST: "the money is used up",
    StopReason.ONLY_CRASHES_LEFT: "what is left would probably crash",
}
