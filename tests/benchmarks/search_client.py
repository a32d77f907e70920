"""Whether the right configuration wins where the fastest is about as fast as the client itself.

Engines answer in 4 to 200 ms. The host of the load generator is under a load of 0 to 5 that lasts
for some runs: the generator is late by times that grow with the load, at sending and at reading,
and the engine is slower by a little. Each run goes through the code of a real one, from its
requests to the bounds of its score.

Declared right: the winner is truly the best or behind it by no more than `EQUAL`; or it is said
that nothing is decided. Wrong by more than chance: it is neither, and the verdict says it is best.
"""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import msgspec

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool
from schemas.task.objectives import Objective
from schemas.task.task_file import TaskFile
from schemas.task.trust import RunInfo
from services.orchestrator.domain.lifecycle.score_error import score_error
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.trust import next_checks, verdict
from shared.benchmarks.arrivals import Load
from shared.benchmarks.levels.level_choice import metrics_of
from shared.benchmarks.levels.measured_level import LevelOutcome, Record, make_measured_level
from shared.benchmarks.metrics import RequestSample
from shared.benchmarks.verdicts.ranking import Scored, score

ENGINES: Final = 300
EQUAL: Final = 0.01  # what no user would tell apart
CLEAR: Final = 1.2  # the second best takes so many times as long, and the best at least
CLEAR_SECONDS: Final = 0.04
REQUESTS: Final = 40
TOKENS: Final = 8
CONCURRENCY: Final = 2
MAX_LOAD: Final = 5
LOAD_LASTS: Final = 0.8  # chance that the next run meets the same load
LATE_SECONDS_PER_LOAD: Final = 0.001  # mean
ENGINE_SLOWED_PER_LOAD: Final = 0.02  # share
NOISE: Final = 0.02
_BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_FILE: Final = msgspec.convert(
    {"task_name": "client", "model": {"id_or_path": "m"}, "base_runtime": "simulated"}, TaskFile
)
_SPEC: Final = BenchmarkSpec(model_name="m")


def client_figures() -> Mapping[str, float]:
    """Return the shares of engines by what was declared of them, in percent."""
    right = decided = wrong = runs = 0
    clear: list[bool] = []
    for seed in range(ENGINES):
        drawn = random.Random(f"client:{seed}")
        truths = _truths(drawn)
        past = _tuned(truths, drawn)
        found = verdict(_FILE.optimization.objective, past)
        regret = truths[(found.winner or 1) - 1] / min(truths) - 1
        is_decided = not found.undecided and not found.ties
        decided += is_decided
        right += regret <= EQUAL or not is_decided
        wrong += is_decided and regret > EQUAL
        runs += len(past) - len(truths)
        first_seconds, second_seconds = sorted(truths)[:2]
        if first_seconds >= CLEAR_SECONDS and second_seconds >= CLEAR * first_seconds:
            clear.append(is_decided)
    return {
        "near_client_right_or_not_decided_percent": round(100 * right / ENGINES, 1),
        "near_client_wrong_by_more_than_chance_percent": round(100 * wrong / ENGINES, 1),
        "near_client_decided_percent": round(100 * decided / ENGINES, 1),
        "near_client_decided_of_clear_percent": round(100 * sum(clear) / len(clear), 1),
        "near_client_checks_mean": round(runs / ENGINES, 1),
    }


def _truths(drawn: random.Random) -> list[float]:
    """Return the seconds that each configuration truly takes, two to eight of them."""
    fastest_seconds = 0.004 * 50 ** drawn.random()
    slower = [
        1 + drawn.choice((0.02, 0.05, 0.1, 0.2, 0.5, 1.0)) for _ in range(drawn.randint(1, 7))
    ]
    truths = [fastest_seconds, *(fastest_seconds * factor for factor in slower)]
    drawn.shuffle(truths)
    return truths


def _tuned(truths: Sequence[float], drawn: random.Random) -> list[RunRecord]:
    past: list[RunRecord] = []
    load = drawn.randint(0, MAX_LOAD)

    def measure(number: int, run: RunInfo) -> None:
        nonlocal load
        if drawn.random() > LOAD_LASTS:
            load = drawn.randint(0, MAX_LOAD)
        benchmark = _measured(truths[number], load, drawn)
        past.append(_past(len(past) + 1, number, benchmark, run))

    for number in range(len(truths)):
        measure(number, RunInfo())
    while checks := next_checks(Objective.MINIMIZE_LATENCY, past, 1):
        for check in checks:
            run = RunInfo(role=check.role, repeats=check.repeats, seed=check.seed)
            measure(check.repeats - 1, run)
    return past


def _measured(true_seconds: float, load: int, drawn: random.Random) -> BenchmarkResult:
    """Return what the load generator would say of an engine that takes so long."""
    mean_late = LATE_SECONDS_PER_LOAD * (0.1 + load) * drawn.uniform(0.7, 1.3)

    def late() -> float:
        return drawn.expovariate(1 / mean_late)

    slowed = true_seconds * (1 + ENGINE_SLOWED_PER_LOAD * load + drawn.gauss(0, NOISE / 2))
    records, now = [], 0.0
    for _ in range(REQUESTS):
        seconds = slowed * (1 + drawn.gauss(0, NOISE)) + late() + late()
        sample = RequestSample(
            ttft=seconds / 4, e2e_latency=seconds, num_input_tokens=8, num_output_tokens=TOKENS
        )
        records.append(Record(now, now + seconds, 0.0, sample))
        now += seconds / CONCURRENCY
    outcome = LevelOutcome(
        load=Load(CONCURRENCY),
        records=records,
        lags=[late() for _ in range(REQUESTS)],
        started_at=_BEGAN,
        started=0.0,
        window_ends=now,
        in_flight_mean=float(CONCURRENCY),
        rate_per_s=REQUESTS / now,
        sent_in_all=REQUESTS,
    )
    level = make_measured_level("D(8,8)", outcome, _SPEC)
    return BenchmarkResult(
        tool=BenchmarkTool.BUILTIN,
        tool_version="1",
        simulated=True,
        levels=(level,),
        metrics=metrics_of(_SPEC, [level]),
        elapsed_seconds=now,
    )


def _past(ordinal: int, number: int, benchmark: BenchmarkResult, run: RunInfo) -> RunRecord:
    scored = Scored(
        experiment_id=UUID(int=ordinal),
        ordinal=ordinal,
        score=score(Objective.MINIMIZE_LATENCY, benchmark.metrics),
    )
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters={"number": number},
        scored=scored,
        run=msgspec.structs.replace(run, error=score_error(_FILE, benchmark)),
    )
