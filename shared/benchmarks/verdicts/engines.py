"""Which engine of several is the better one, for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.task.trust import EngineStanding, TrustVerdict
from shared.engines.variants import flags_of, title_of, variant_of


def engine_lines(trust: TrustVerdict) -> Iterator[str]:
    """Yield how each engine stands against the winner's, a sentence each."""
    for standing in trust.engines[1:]:
        leader = trust.engines[0]
        yield f"{_comparison(_name(leader), _name(standing), standing)}."


def winner_text(trust: TrustVerdict, parameters: Mapping[str, Any]) -> str:
    """Return the winner against the next engine: `SGLang v0.5 with page-size=32 beats vLLM v0.18 by
    22 % (noise 3 %)`; empty where there is one engine. `parameters` are the winner's.
    """
    if len(trust.engines) < 2:
        return ""
    rival = min(trust.engines[1:], key=lambda standing: standing.behind_percent)
    return _comparison(_with_flags(parameters), _title(rival), rival)


def single_runs_text(leader: Mapping[str, Any], other: Mapping[str, Any], percent: float) -> str:
    """Return the same of two configurations that were measured once, `percent` apart."""
    return (
        f"{_with_flags(leader)} measured {percent:.3g} % ahead of {title_of(variant_of(other))},"
        " and nothing was measured twice: it may be chance"
    )


def _comparison(leader: str, other: str, standing: EngineStanding) -> str:
    behind, noise = standing.behind_percent, standing.noise_percent
    if noise is None:
        return (
            f"{leader} measured {behind:.3g} % ahead of {other}, and how much of that is chance is"
            " not known"
        )
    if standing.is_decided:
        return f"{leader} beats {other} by {behind:.3g} % (noise {noise:.3g} %)"
    if behind > noise:
        return (
            f"{leader} measured {behind:.3g} % ahead of {other} (noise {noise:.3g} %), but runs"
            " that were set aside say otherwise"
        )
    return (
        f"{leader} cannot be told from {other}: they are {abs(behind):.3g} % apart, within the"
        f" noise ({noise:.3g} %)"
    )


def _with_flags(parameters: Mapping[str, Any]) -> str:
    flags = ", ".join(f"{name}={value}" for name, value in flags_of(parameters).items())
    title = title_of(variant_of(parameters))
    return f"{title} with {flags}" if flags else title


def _title(standing: EngineStanding) -> str:
    return title_of((standing.base_runtime, standing.model, standing.runtime_image_tag))


def _name(standing: EngineStanding) -> str:
    runs = "1 run" if standing.runs == 1 else f"{standing.runs} runs"
    return f"{_title(standing)} (experiment {standing.ordinal}, {runs})"
