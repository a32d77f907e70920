"""What keeping engines up saves, by studies over the decisions alone: no engine runs here.

Each study is planned twice, with and without `keep_engine`, from the same seeded scores: what a run
measures is the configuration's truth, what its start adds, and what the run itself adds.
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.trust import RunInfo, TrustVerdict
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.kept_engines import decide, start_of
from services.orchestrator.domain.search.trust import next_checks, verdict
from shared.benchmarks.verdicts.ranking import Scored

OBJECTIVE: Final = Objective.MAXIMIZE_THROUGHPUT
WAIT_SECONDS: Final = 3.0  # between the end of a run and the start of the next on its engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """`truths` by configuration, shares by which a start and a run are off, and seconds."""

    truths: tuple[float, ...]
    of_start: float
    of_run: float
    start_seconds: float
    run_seconds: float
    seed: int


@dataclass(slots=True)
class Ledger:
    """The runs of a study so far and the GPU-seconds they took."""

    study: Study
    past: list[RunRecord] = field(default_factory=list)
    gpu_seconds: float = 0.0
    starts: int = 0
    up: int | None = None  # the run whose engine is up
    _counts: dict[tuple[str, int], int] = field(default_factory=dict)

    def measure(self, configuration: int, run: RunInfo) -> None:
        study = self.study
        if run.kept_from is None:
            self.starts += 1
            self.gpu_seconds += study.start_seconds
            self._draw("start", configuration, study.of_start)
        else:
            self.gpu_seconds += WAIT_SECONDS
        self.gpu_seconds += study.run_seconds
        start_error = self._error("start", configuration, study.of_start)
        run_error = self._draw("run", configuration, study.of_run)
        score = study.truths[configuration - 1] * (1 + start_error + run_error)
        ordinal = len(self.past) + 1
        scored = Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=score)
        record = RunRecord(
            ordinal=ordinal,
            state=ExperimentState.SUCCEEDED,
            parameters={"n": configuration},
            scored=scored,
            run=run,
        )
        self.past.append(record)

    def _draw(self, what: str, configuration: int, share: float) -> float:
        key = (what, configuration)
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._error(what, configuration, share)

    def _error(self, what: str, configuration: int, share: float) -> float:
        number = self._counts[(what, configuration)]
        rng = random.Random(f"{self.study.seed} {what} {configuration} {number}")
        return rng.gauss(0, share)


def run_study(study: Study, *, keeps: bool) -> tuple[Ledger, TrustVerdict]:
    """Return all runs of a study of one GPU, one after the other, and its verdict."""
    ledger = Ledger(study)
    for configuration in range(1, len(study.truths) + 1):
        ledger.measure(configuration, RunInfo())
    up: RunRecord | None = None
    while True:
        of_up = up.run.repeats if up is not None else None
        checks = next_checks(OBJECTIVE, ledger.past, 1, () if of_up is None else (of_up,))
        if not checks:
            return ledger, verdict(OBJECTIVE, ledger.past)
        [check] = checks
        is_kept = (
            up is not None
            and of_up == check.repeats
            and decide(check.role, check.repeats, ledger.past).is_kept
        )
        if up is not None and not is_kept:
            ledger.gpu_seconds += WAIT_SECONDS  # it was up until this was decided
        start = start_of(up) if up is not None and is_kept else None
        info = RunInfo(role=check.role, repeats=check.repeats, seed=check.seed, kept_from=start)
        ledger.measure(check.repeats, info)
        up = ledger.past[-1] if keeps else None


def make_study(seed: int) -> Study:
    """A study as people run them: 2 to 8 configurations, near each other or not."""
    rng = random.Random(seed)
    count = rng.randint(2, 8)
    spread = rng.choice((0.02, 0.1, 0.3))
    return Study(
        truths=tuple(100 * (1 + rng.uniform(0, spread)) for _ in range(count)),
        of_start=rng.choice((0.0, 0.002, 0.005, 0.01)),
        of_run=rng.choice((0.005, 0.01, 0.02)),
        start_seconds=rng.choice((60.0, 120.0, 240.0)),
        run_seconds=rng.choice((30.0, 60.0, 120.0)),
        seed=seed,
    )


def is_equal(first: TrustVerdict, other: TrustVerdict) -> bool:
    """Return whether neither says that the other's winner is worse than its own."""
    return first.winner in {other.winner, *other.ties} and other.winner in {
        first.winner,
        *first.ties,
    }


def simulate(seeds: Sequence[int]) -> dict[str, Any]:
    ratios, equal, same, starts = [], 0, 0, [0, 0]
    regrets: tuple[list[float], list[float]] = ([], [])
    for seed in seeds:
        study = make_study(seed)
        without, plain = run_study(study, keeps=False)
        kept, found = run_study(study, keeps=True)
        ratios.append(kept.gpu_seconds / without.gpu_seconds)
        starts[0] += without.starts
        starts[1] += kept.starts
        equal += is_equal(plain, found)
        same += plain.winner == found.winner
        best = max(study.truths)
        for regret, found_by in zip(regrets, (plain, found), strict=True):
            regret.append(100 * (1 - study.truths[(found_by.winner or 1) - 1] / best))
    return {
        "kept_up_studies": len(ratios),
        "kept_up_gpu_seconds_over_restart": statistics.fmean(ratios),
        "kept_up_gpu_seconds_least": min(ratios),
        "kept_up_starts_over_restart": starts[1] / starts[0],
        "kept_up_equal_verdict_share": equal / len(ratios),
        "kept_up_same_winner_share": same / len(ratios),
        "kept_up_regret_percent": [statistics.fmean(regret) for regret in regrets],
    }
