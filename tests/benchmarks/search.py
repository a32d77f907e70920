"""How near searches come to the best configuration, and with how many experiments.

Surfaces stand for an engine's response to its flags: a smooth one, a ridge (the best batch depends
on the parallelism) and a cliff (out of memory beside the best). Each seed is another engine,
measured with noise. Nothing runs but the search: no platform, no GPU.

Servers of a known greatest load stand for engines whose boundary is searched.

Regret is how much worse the declared best truly is than the true best of the grid, which is known.
"""

import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from rich.console import Console
from rich.table import Table

from schemas.executor.attempts import FailureKind
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.strategies import Strategy
from schemas.task.task_file import OptimizationSpec
from schemas.task.trust import RunInfo
from services.orchestrator.domain.configurations import Axis, Point
from services.orchestrator.domain.search.history import RunRecord, trials_of
from services.orchestrator.domain.search.propose import begin_search, propose
from services.orchestrator.domain.search.search import Proposal
from services.orchestrator.domain.search.space import Space, space_of
from shared.benchmarks.verdicts.ranking import Scored, rank
from tests.benchmarks.search_client import client_figures
from tests.benchmarks.search_prior import prior_figures
from tests.benchmarks.search_trust import winner_figures
from tests.support.known_servers.noisy_servers import LARGEST, SEARCH, make_server, search_boundary

SEEDS: Final = 50
NOISE: Final = 0.02  # standard deviation of a measurement, as a share of it
MAX_OF_GRID: Final = 0.25
LEARNED_AFTER: Final = 3  # crashes
SERVERS: Final = 200
BOUNDARY_NOISE: Final = 0.05
FLAGS: Final[dict[str, tuple[Any, ...]]] = {
    "tensor-parallel-size": (1, 2, 4, 8),
    "max-num-seqs": (16, 32, 64, 128, 256, 512),
    "chunked-prefill-size": (512, 1024, 2048, 4096, 8192),
    "schedule-policy": ("lpm", "fcfs"),
}

Latency = Callable[[Point], float | None]


@dataclass(frozen=True)
class Run:
    """`regret` as a share; `crashes` of the proposals that followed the third crash;
    `gpu_seconds` as a share of the grid's, an experiment taking as long as any other.
    """

    regret: float
    experiments: int
    crashes: int
    after_third: int
    gpu_seconds: float


def make_space() -> Space:
    return space_of(
        [Axis(block="parameters", name=name, values=values) for name, values in FLAGS.items()]
    )


def make_surface(kind: str, seed: int) -> Latency:
    """Milliseconds by configuration; None: out of memory."""
    drawn = random.Random(f"{kind}:{seed}")
    peaks = {name: drawn.random() for name in FLAGS}
    weights = {name: drawn.uniform(0.3, 1.5) for name in FLAGS}
    lpm = drawn.uniform(-0.15, 0.15)
    slope = drawn.uniform(0.4, 0.8)
    limit = drawn.uniform(0.9, 1.4)

    def latency(point: Point) -> float | None:
        at = {
            name: values.index(point.parameters[name]) / (len(values) - 1)
            for name, values in FLAGS.items()
        }
        tp, batch, chunk, policy = at.values()
        if kind == "cliff" and batch + chunk - slope * tp > limit:
            return None
        best = dict(peaks)
        if kind == "ridge":
            best["max-num-seqs"] = slope * tp + 0.2
        badness = sum(weights[name] * (at[name] - best[name]) ** 2 for name in list(FLAGS)[:3])
        return 100 * math.exp(badness + lpm * policy)

    return latency


def search_surface(strategy: Strategy, space: Space, surface: Latency, seed: int) -> Run:
    """A measurement with fewer requests is as much noisier, and as much shorter."""
    noise = random.Random(f"noise:{seed}")
    grid = [surface(space.point(place)) for place in space.places()]
    optimum = min(value for value in grid if value is not None)
    # The staged search says itself how many it needs.
    is_planned = strategy in {Strategy.AUTO, Strategy.SUCCESSIVE_HALVING}
    most = None if is_planned else int(len(grid) * MAX_OF_GRID)
    spec = OptimizationSpec(strategy=strategy, max_iterations=most, seed=seed)
    search = begin_search(spec, space)
    past: list[RunRecord] = []
    while True:
        trials = trials_of((Objective.MINIMIZE_LATENCY,), space, past)
        proposal = propose(search, trials, lambda _: True)
        if not isinstance(proposal, Proposal):
            break
        truth = surface(proposal.point)
        spread = NOISE * math.sqrt(proposal.divisor)
        measured = None if truth is None else truth * (1 + noise.gauss(0, spread))
        past.append(past_of(proposal.ordinal, proposal.point, measured, proposal.divisor))
    whole = [each for each in past if each.run.request_divisor == 1]
    scored = [each.scored for each in whole if each.scored is not None]
    declared = past[rank(Objective.MINIMIZE_LATENCY, scored).ranked[0].ordinal - 1]
    truth = surface(space.point(space.place(declared.parameters) or ()))
    failed = [each.state is ExperimentState.FAILED for each in past]
    crashed = [place for place, is_failed in enumerate(failed) if is_failed]
    rest = failed[crashed[LEARNED_AFTER - 1] + 1 :] if len(crashed) >= LEARNED_AFTER else []
    return Run(
        regret=(truth or math.inf) / optimum - 1,
        experiments=len(past),
        crashes=sum(rest),
        after_third=len(rest),
        gpu_seconds=sum(
            int(each.parameters["tensor-parallel-size"]) / each.run.request_divisor for each in past
        )
        / sum(
            int(space.point(place).parameters["tensor-parallel-size"]) for place in space.places()
        ),
    )


def past_of(ordinal: int, point: Point, score: float | None, divisor: int = 1) -> RunRecord:
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.SUCCEEDED if score is not None else ExperimentState.FAILED,
        parameters=point.show(),
        scored=Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=score)
        if score is not None
        else None,
        failure=None if score is not None else FailureKind.GPU_OUT_OF_MEMORY,
        run=RunInfo(request_divisor=divisor),
    )


def median_percent(runs: Iterable[Run]) -> float:
    return round(100 * statistics.median(run.regret for run in runs), 2)


def median_gpu_seconds(runs: Iterable[Run]) -> float:
    return round(statistics.median(run.gpu_seconds for run in runs), 3)


def crash_percent(runs: Iterable[Run]) -> float:
    runs = list(runs)
    return round(100 * sum(r.crashes for r in runs) / max(sum(r.after_third for r in runs), 1), 1)


def find_boundaries() -> dict[str, float]:
    """Prints a table of brackets by noise; figures are of the middle one."""
    table = Table(
        "noise", "levels median", "p90", "in bracket %", "bracket high/low median", "p90",
        "estimate off by, median %",
        title=f"{SERVERS} servers of known boundary in [1, {LARGEST:g}]",
    )  # fmt: skip
    figures: dict[str, float] = {}
    for noise in (0.02, 0.05, 0.1):
        servers = [make_server(number, noise) for number in range(SERVERS)]
        found = [(server, *search_boundary(server, seed)) for seed, server in enumerate(servers)]
        levels = [len(measured) for _, _, measured in found]
        inside = 100 * sum(server.is_in(each) for server, each, _ in found) / SERVERS
        widths = [(each.high or SEARCH.max) / (each.low or SEARCH.min) for _, each, _ in found]
        off = [abs((each.estimate or 0.0) / server.boundary - 1) for server, each, _ in found]
        table.add_row(
            f"{noise:.0%}",
            f"{statistics.median(levels):g}",
            f"{statistics.quantiles(levels, n=10)[8]:g}",
            f"{inside:.1f}",
            f"{statistics.median(widths):.3f}",
            f"{statistics.quantiles(widths, n=10)[8]:.3f}",
            f"{100 * statistics.median(off):.1f}",
        )
        if noise == BOUNDARY_NOISE:
            figures = {
                "boundary_probes_median": statistics.median(levels),
                "boundary_in_bracket_percent": inside,
                "boundary_bracket_width_median": round(statistics.median(widths), 3),
            }
    Console().print(table)
    return figures


def main() -> None:
    """Search, print the table, print the JSON line."""
    space = make_space()
    size = space.size or 0
    table = Table(
        "surface", "strategy", "median regret %", "p90 %", "experiments", "GPU-seconds of grid's %",
        "crashes after 3 %",
        title=f"{size} configurations, {SEEDS} seeds, noise {NOISE:.0%}",
    )  # fmt: skip
    found: dict[Strategy, list[Run]] = {}
    strategies = (Strategy.RANDOM, Strategy.BAYESIAN, Strategy.AUTO, Strategy.SUCCESSIVE_HALVING)
    for strategy in strategies:
        for kind in ("smooth", "ridge", "cliff"):
            runs = [
                search_surface(strategy, space, make_surface(kind, seed), seed)
                for seed in range(SEEDS)
            ]
            found.setdefault(strategy, []).extend(runs)
            table.add_row(
                kind,
                strategy.value,
                f"{median_percent(runs)}",
                f"{100 * statistics.quantiles([run.regret for run in runs], n=10)[8]:.2f}",
                f"{statistics.median(run.experiments for run in runs):g}",
                f"{100 * median_gpu_seconds(runs):.1f}",
                f"{crash_percent(runs)}",
            )
    Console().print(table)
    boundaries = find_boundaries()
    bayes = found[Strategy.BAYESIAN]
    result = {
        "bayes_median_regret_percent": median_percent(bayes),
        "bayes_experiments_over_grid": round(
            statistics.median(run.experiments for run in bayes) / size, 3
        ),
        "auto_median_regret_percent": median_percent(found[Strategy.AUTO]),
        "auto_experiments_over_grid": round(
            statistics.median(run.experiments for run in found[Strategy.AUTO]) / size, 3
        ),
        "gpu_seconds_over_grid": median_gpu_seconds(bayes),
        "auto_gpu_seconds_over_grid": median_gpu_seconds(found[Strategy.AUTO]),
        "halving_median_regret_percent": median_percent(found[Strategy.SUCCESSIVE_HALVING]),
        "halving_gpu_seconds_over_grid": median_gpu_seconds(found[Strategy.SUCCESSIVE_HALVING]),
        "random_median_regret_percent": median_percent(found[Strategy.RANDOM]),
        "crashes_after_third_percent": crash_percent(bayes),
        **boundaries,
    }
    few = space_of(
        [Axis(block="parameters", name=n, values=v[:: len(v) // 2]) for n, v in FLAGS.items()]
    )
    result |= winner_figures(
        [
            make_surface(kind, seed)
            for kind in ("smooth", "ridge", "cliff")
            for seed in range(SEEDS)
        ],
        [few.point(place) for place in few.places()],
        NOISE,
    )
    kinds = ("smooth", "ridge", "cliff")
    surfaces = [make_surface(kind, seed) for kind in kinds for seed in range(SEEDS)]
    result |= prior_figures(space, surfaces, NOISE)
    result |= client_figures()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
