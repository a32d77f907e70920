"""What AIConfigurator predicts of configurations, corrected by what was measured before."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from shared.engines.table import PROFILES

# AIConfigurator's names of GPUs, by those of `SPEEDS`.
SYSTEMS: Final = {
    "B200": "b200_sxm",
    "H200": "h200_sxm",
    "H100 PCIe": "h100_pcie",
    "H100": "h100_sxm",
    "A100-SXM4-80GB": "a100_sxm",
    "A100 80GB PCIe": "a100_pcie",
    "L40S": "l40s",
    "L4": "l4",
    "A30": "a30",
}
LEAST_EXPERIMENTS: Final = 3  # fewer teach nothing
_LARGEST_RATIO: Final = 10.0  # beyond it something else was measured


class Question(Struct, frozen=True, kw_only=True):
    """One configuration at one load: `batch` requests at once in each engine."""

    engine: str
    model: str
    tp: int
    pp: int
    batch: int
    gemm: str = ""
    kvcache: str = ""

    @property
    def key(self) -> str:
        """Return what an answer is found by."""
        parts = (self.engine, self.model, self.tp, self.pp, self.batch, self.gemm, self.kvcache)
        return "|".join(map(str, parts))

    def arguments(
        self, system: str, input_tokens: float, output_tokens: float
    ) -> Mapping[str, Any]:
        """Return what AIConfigurator's `cli_estimate` takes."""
        modes = {"gemm_quant_mode": self.gemm, "kvcache_quant_mode": self.kvcache}
        return {
            "model_path": self.model,
            "system_name": system,
            "backend_name": self.engine,
            "isl": max(1, round(input_tokens)),
            "osl": max(2, round(output_tokens)),
            "tp_size": self.tp,
            "pp_size": self.pp,
            "batch_size": self.batch,
            **{name: mode for name, mode in modes.items() if mode},
        }


class Forecast(Struct, frozen=True, kw_only=True):
    """The tool's answer to a question, in seconds."""

    ttft: float
    tpot: float


class Correction(Struct, frozen=True, kw_only=True):
    """By how much `experiments` measured more than was predicted: the ratio of the two."""

    ratio: float
    experiments: int


class Forecasts(Struct, frozen=True, kw_only=True):
    """All that was answered for a task when it was submitted: `answers` by `Question.key`, and
    `corrections` by engine.
    """

    system: str
    answers: dict[str, Forecast]
    corrections: dict[str, Correction] = {}

    def find(self, question: Question) -> Forecast | None:
        """Return the answer to a question; None where there is none."""
        return self.answers.get(question.key)

    def ratio_for(self, engine: str) -> float:
        """Return what a score that is predicted of this engine is multiplied by."""
        correction = self.corrections.get(engine)
        return correction.ratio if correction is not None else 1.0


def engine_asked(base_runtime: str) -> str | None:
    """Return the engine that a `base_runtime` names; None for one that is not predicted."""
    name = base_runtime.lower()
    return next(
        (
            engine
            for engine, profile in PROFILES.items()
            if profile.is_predicted and (name == engine or name.startswith(f"{engine}-"))
        ),
        None,
    )


def learn_correction(scores: Iterable[tuple[float, float]]) -> Correction | None:
    """Return the middle of how measured scores are to predicted ones; None of too few.

    Each pair is what was predicted, without any correction, and what was measured. One far off
    counts no more than another.
    """
    ratios = [measured / predicted for predicted, measured in scores if predicted > 0 < measured]
    if len(ratios) < LEAST_EXPERIMENTS:
        return None
    ratio = statistics.median(ratios)
    bounded = min(max(ratio, 1 / _LARGEST_RATIO), _LARGEST_RATIO)
    return Correction(ratio=bounded, experiments=len(ratios))


def describe_answers(forecasts: Forecasts, versions: Sequence[str], number: int) -> str:
    """Say what was predicted, and by what."""
    return (
        f"prior: AIConfigurator for {forecasts.system} ({', '.join(versions)}) predicts"
        f" {len(forecasts.answers)} of {number} configurations and loads"
    )


def say_corrections(forecasts: Forecasts) -> str:
    """Say what predictions are corrected by, and from how many experiments that was learned."""
    learned = "; ".join(
        f"{engine} times {correction.ratio:.3g}, learned from {correction.experiments} experiments"
        for engine, correction in forecasts.corrections.items()
    )
    return learned or f"not corrected, as fewer than {LEAST_EXPERIMENTS} experiments tell by what"
