"""Runs that are compared ran on the same: GPU model, part of it, power limit, driver, image."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from schemas.task.trust import RunInfo

POWER_LIMIT: Final = "power limit in W"
# What is empty is unknown, and differs from nothing.
ASPECTS: Final[Mapping[str, Callable[[RunInfo], str]]] = {
    "GPU model": lambda run: ", ".join(run.setting.gpu_models),
    "GPU memory in MB": lambda run: ", ".join(map(str, run.setting.memory_total_mb)),
    "MIG profile": lambda run: ", ".join(run.setting.mig_profiles),
    POWER_LIMIT: lambda run: ", ".join(map(str, run.setting.power_limits_w)),
    "driver": lambda run: ", ".join(run.setting.driver_versions),
    "image": lambda run: run.image_digest[:19],
}


def other_settings(
    runs: Mapping[int, RunInfo], parameters: Iterable[Mapping[str, Any]]
) -> dict[int, str]:
    """Return why runs, by ordinal, cannot be compared to the others: they ran on something else
    than most did.

    A power limit among the `parameters` of the search is varied on purpose and no such reason.
    """
    is_limit_varied = any(
        name.endswith("power_limit_w")
        for parameters_of_run in parameters
        for name in parameters_of_run
    )
    aspects = [name for name in ASPECTS if name != POWER_LIMIT or not is_limit_varied]
    common = {name: _most_common([ASPECTS[name](run) for run in runs.values()]) for name in aspects}
    reasons = {
        ordinal: [
            f"it ran on {name} {value}, others on {common[name]}"
            for name in aspects
            if (value := ASPECTS[name](run)) and value != common[name]
        ]
        for ordinal, run in runs.items()
    }
    return {ordinal: "; ".join(texts) for ordinal, texts in reasons.items() if texts}


def _most_common(values: Sequence[str]) -> str:
    """Return the most frequent known value, the first of equally frequent ones."""
    counts = Counter(value for value in values if value)
    return counts.most_common(1)[0][0] if counts else ""
