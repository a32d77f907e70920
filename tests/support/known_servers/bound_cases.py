"""Levels on the batching engine whose bound is known by what would help: more room, or less work.

The truth is asked of the engine's rules alone: a limit whose doubling gives a fifth more requests
per second is the bound, else the work that halved gives more. What is judged are the level as
measured and the engine's `/metrics`, read once a second.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean

import msgspec

from schemas.executor.engine_samples import EngineReading
from schemas.task.benchmark import BenchmarkSpec, LevelMark, LevelResult
from schemas.task.level_bound import Bound
from services.results.domain.bounds import WindowFacts, bounds_of
from shared.benchmarks.arrivals import loads
from shared.benchmarks.builtin.generator import LoadGenerator
from shared.engines.metrics_page import read_page
from shared.engines.simulated.batch import BatchSpeed
from shared.engines.simulated.batch_server import BatchRoutes, BatchRunner
from tests.support.known_servers.batch_truth import closed_loop
from tests.support.known_servers.known_engine import TRAVEL_SECONDS, KnownEngine, NoCache, make_spec
from tests.support.virtual_time import run_virtually

GAIN = 1.2
BASE = BatchSpeed(
    step_seconds=0.01,
    prefill_token_seconds=0.00005,
    kv_token_seconds=0.0000002,
    slots=64,
    kv_tokens=200_000,
    batch_tokens=2048,
)


@dataclass(frozen=True)
class Case:
    """A load on an engine; `alone`: no level before it shows the engine without a queue."""

    speed: BatchSpeed
    size: tuple[int, int]
    clients: int
    alone: bool = False

    @property
    def name(self) -> str:
        limits = f"{self.speed.slots} slots, {self.speed.kv_tokens} KV"
        return f"{self.size[0]}+{self.size[1]} by {self.clients}, {limits}"


def cases() -> list[Case]:
    kinds = [
        *(Case(BASE, size, clients) for size in ((100, 100), (500, 50)) for clients in (1, 16)),
        *(Case(BASE, (4000, 8), clients) for clients in (1, 8, 48)),
        *(Case(replace(BASE, slots=slots), (50, 80), 32) for slots in (2, 8)),
        *(Case(replace(BASE, kv_tokens=room), (300, 100), 32) for room in (1500, 4000)),
        Case(replace(BASE, slots=4, kv_tokens=2000), (300, 60), 24),
        Case(replace(BASE, kv_token_seconds=0.00001), (800, 100), 24),
    ]
    return [*kinds, *(replace(case, alone=True) for case in kinds if case.clients > 1)]


def truth_of(case: Case) -> Bound:
    def rate(**changes: float) -> float:
        times = closed_loop(
            replace(case.speed, **changes),  # type: ignore[arg-type]  # by name
            case.size,
            clients=case.clients,
            requests=60 * case.clients,
            travel_seconds=TRAVEL_SECONDS,
            ramp_seconds=1.0,
        )
        return 1 / fmean(each.e2e for each in times[10 * case.clients :])

    speed, now = case.speed, rate()
    limits = {
        Bound.QUEUE: rate(slots=2 * speed.slots) / now,
        Bound.KV_CACHE: rate(kv_tokens=2 * (speed.kv_tokens or 0)) / now,
    }
    if max(limits.values()) >= GAIN:
        return max(limits, key=lambda bound: limits[bound])
    prefill = rate(prefill_token_seconds=speed.prefill_token_seconds / 2)
    decode = rate(step_seconds=speed.step_seconds / 2, kv_token_seconds=speed.kv_token_seconds / 2)
    return Bound.PREFILL if prefill > decode else Bound.DECODE


def named_of(case: Case) -> Bound | None:
    """What the product says."""
    measured = [] if case.alone or case.clients == 1 else [_measured(replace(case, clients=1))]
    measured.append(_measured(case))
    found = bounds_of([level for level, _ in measured], [facts for _, facts in measured])[-1]
    return found.bound if found is not None else None


def disturbed() -> Iterator[tuple[Bound, Bound | None]]:
    """Levels whose client or GPUs are scripted: the truth, and what the product says."""
    level, facts = _measured(Case(BASE, (100, 100), 4))
    late = msgspec.structs.replace(level, marks=(LevelMark.CLIENT_LIMITED,))
    yield Bound.CLIENT, _only(late, facts)
    for share in (0.3, 1.0):
        power = msgspec.structs.replace(facts, power_throttled=share, thermal_throttled=0.1)
        yield Bound.POWER, _only(level, power)
        heat = msgspec.structs.replace(facts, power_throttled=0.1, thermal_throttled=share)
        yield Bound.THERMAL, _only(level, heat)
    yield Bound.DECODE, _only(level, msgspec.structs.replace(facts, power_throttled=0.05))


def _only(level: LevelResult, facts: WindowFacts) -> Bound | None:
    [found] = bounds_of([level], [facts])
    return found.bound if found is not None else None


def _measured(case: Case) -> tuple[LevelResult, WindowFacts]:
    spec = make_spec(
        traffic_scenarios=(f"D({case.size[0]},{case.size[1]})",),
        num_concurrency=(case.clients,),
        max_requests_per_level=30 * case.clients,
    )
    return run_virtually(_run(case, spec))


async def _run(case: Case, spec: BenchmarkSpec) -> tuple[LevelResult, WindowFacts]:
    engine = KnownEngine(case.speed)
    generator = LoadGenerator(server=engine, cache=NoCache(), seed=7)
    readings: list[EngineReading] = []
    asking = asyncio.create_task(_ask(engine.runner, readings))
    try:
        level = await generator.run_level(1, spec.traffic_scenarios[0], loads(spec)[0], spec)
    finally:
        asking.cancel()
    return level, WindowFacts(
        running=fmean(each.running or 0.0 for each in readings),
        running_most=max(each.running or 0.0 for each in readings),
        waiting=fmean(each.waiting or 0.0 for each in readings),
        kv_cache_percent=fmean(each.kv_cache_percent or 0.0 for each in readings),
        preemptions=(readings[-1].preemptions or 0.0) - (readings[0].preemptions or 0.0),
    )


async def _ask(runner: BatchRunner, readings: list[EngineReading]) -> None:
    routes = BatchRoutes(runner, "m")
    while True:
        found = read_page(routes.page())
        assert found is not None
        readings.append(found[1])
        await asyncio.sleep(1.0)
