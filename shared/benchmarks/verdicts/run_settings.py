"""Runs that are compared ran on the same: GPU model, part of it, power limit, driver, image."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from schemas.task.fingerprint import Canary
from schemas.task.trust import RunInfo
from shared.engines.variants import SINGLE, Variant, variant_of

POWER_LIMIT: Final = "power limit in W"
IMAGE: Final = "image"
ENDPOINT_URL: Final = "endpoint.url"
# What is empty is unknown, and differs from nothing.
ASPECTS: Final[Mapping[str, Callable[[RunInfo], str]]] = {
    "GPU model": lambda run: ", ".join(run.setting.gpu_models),
    "GPU memory in MB": lambda run: ", ".join(map(str, run.setting.memory_total_mb)),
    "MIG profile": lambda run: ", ".join(run.setting.mig_profiles),
    POWER_LIMIT: lambda run: ", ".join(map(str, run.setting.power_limits_w)),
    "driver": lambda run: ", ".join(run.setting.driver_versions),
    IMAGE: lambda run: run.image_digest[:19],
}
# Marked where they differ, and no reason against a comparison: what they change is seldom much.
MARKED: Final[Mapping[str, Callable[[RunInfo], str]]] = {
    "CPU": lambda run: run.setting.cpu_model,
    "CPU governor": lambda run: run.setting.cpu_governor,
    "engine version": lambda run: run.setting.engine_version,
}
POWERSAVE: Final = "powersave"
CANARY_FROM_SHARE: Final = 0.05  # off the truth


def other_settings(
    runs: Mapping[int, RunInfo], parameters: Iterable[Mapping[str, Any]]
) -> dict[int, str]:
    """Return why runs, by ordinal, cannot be compared to the others: they ran on something else
    than most did.

    A power limit among the `parameters` of the search, which are in the order of the runs, is
    varied on purpose and no such reason. Images are compared between runs of one engine. Servers
    that run already are compared as they are.
    """
    all_parameters = list(parameters)
    if any(ENDPOINT_URL in parameters_of_run for parameters_of_run in all_parameters):
        return {}
    is_limit_varied = any(
        name.endswith("power_limit_w")
        for parameters_of_run in all_parameters
        for name in parameters_of_run
    )
    aspects = [name for name in ASPECTS if name != POWER_LIMIT or not is_limit_varied]
    engines = dict(zip(runs, map(variant_of, all_parameters), strict=True))
    values: dict[tuple[str, Variant], list[str]] = defaultdict(list)
    for ordinal, run in runs.items():
        for name in aspects:
            values[name, _group(name, engines[ordinal])].append(ASPECTS[name](run))
    common = {key: _most_common(values_of_key) for key, values_of_key in values.items()}
    reasons = {
        ordinal: [
            f"it ran on {name} {value}, others on {usual_value}"
            for name in aspects
            if (value := ASPECTS[name](run))
            and value != (usual_value := common[name, _group(name, engines[ordinal])])
        ]
        for ordinal, run in runs.items()
    }
    return {ordinal: "; ".join(texts) for ordinal, texts in reasons.items() if texts}


def _group(aspect: str, engine: Variant) -> Variant:
    """Return the engine among whose runs an aspect is compared; all runs where it is of the GPU."""
    return engine if aspect == IMAGE else SINGLE


def _most_common(values: Sequence[str]) -> str:
    """Return the most frequent known value, the first of equally frequent ones."""
    counts = Counter(value for value in values if value)
    return counts.most_common(1)[0][0] if counts else ""


def describe_hosts(runs: Mapping[int, RunInfo]) -> list[str]:
    """Return sentences about what runs were measured with otherwise than most, and about processors
    that save power: either may change times that are taken for the engine's.
    """
    sentences = []
    for name, value_of in MARKED.items():
        common_value = _most_common([value_of(run) for run in runs.values()])
        other_ordinals: dict[str, list[int]] = defaultdict(list)
        for ordinal, run in runs.items():
            if (value := value_of(run)) and value != common_value:
                other_ordinals[value].append(ordinal)
        sentences += [
            f"experiments {', '.join(map(str, ordinals))}: measured with {name} {value}, most with "
            f"{common_value}"
            for value, ordinals in other_ordinals.items()
        ]
    if any(POWERSAVE in run.setting.cpu_governor for run in runs.values()):
        sentences.append(
            f"the CPU governor of a host that sent the load is {POWERSAVE}: times to the first "
            "token may be longer than the engine's; `cpupower frequency-set -g performance` ends it"
        )
    return sentences


def describe_engine_uses(runs: Mapping[int, RunInfo]) -> list[str]:
    """Return a sentence about the runs that were measured on an engine kept up, if any was."""
    kept = {ordinal: run for ordinal, run in runs.items() if run.kept_from is not None}
    if not kept:
        return []
    ordinals = ", ".join(map(str, sorted(kept)))
    resets = sorted({run.engine_use.partition(", ")[2] for run in kept.values()})
    sentence = (
        f"experiments {ordinals} were measured on the engine of the run before them, which was "
        f"kept up ({'; '.join(resets)}); all others had a fresh start"
    )
    return [sentence]


def describe_canaries(canaries: Iterable[Canary | None]) -> list[str]:
    """Return a sentence where a load tool was off known times on its host, by the worst of them.

    All runs of one tool on one host are off alike, so that they are compared all the same.
    """
    worst = max((c for c in canaries if c is not None), key=lambda c: c.error_share, default=None)
    if worst is None or worst.error_share < CANARY_FROM_SHARE:
        return []
    measured = (worst.ttft_seconds * 1000, worst.tpot_seconds * 1000)
    true = (worst.true_ttft_seconds * 1000, worst.true_tpot_seconds * 1000)
    sentence = (
        f"the load tool is off by up to {worst.error_share:.0%} on its host: it measured "
        f"{measured[0]:.1f} ms to the first token and {measured[1]:.2f} ms per token of a server "
        f"that takes {true[0]:.0f} ms and {true[1]:.0f} ms"
    )
    return [sentence]
