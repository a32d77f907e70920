"""Servers whose greatest load within the constraints is known, measured with noise."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from schemas.task.benchmark import LoadBoundary, LoadSearch
from shared.benchmarks.levels.boundary import Probe, boundary_of, next_load

LARGEST = 1000.0
SEARCH = LoadSearch(max=4096)


@dataclass(frozen=True, kw_only=True)
class NoisyServer:
    """`latency` is a share of its bound, 1 at the boundary; `noise` the standard deviation of a
    measurement as a share of it.
    """

    boundary: float
    latency: Callable[[float], float]
    noise: float

    def measure(self, load: float, drawn: random.Random) -> Probe:
        measured = self.latency(load) * math.exp(drawn.gauss(0, self.noise))
        margin = min(max(1 - measured, -1.0), 1.0)
        return Probe(load=load, margin=margin, error=self.noise * min(measured, 2.0))

    def is_in(self, found: LoadBoundary) -> bool:
        return (found.low or 0.0) <= self.boundary < (found.high or math.inf)


def make_server(number: int, noise: float = 0.05) -> NoisyServer:
    """A boundary from 1 to 1000: every third server is a queue, a power of its load, a cliff."""
    drawn = random.Random(f"server:{number}")
    boundary = drawn.uniform(1, LARGEST)
    steepness, headroom = drawn.uniform(0.6, 3), drawn.uniform(1.15, 2)

    def latency(load: float) -> float:
        at = load / boundary
        kind = number % 3
        if kind == 0:
            return (headroom - 1) / max(headroom - at, 1e-3)
        if kind == 1:
            return math.pow(at, steepness)
        return 0.6 * math.pow(at, 0.1) if at <= 1 else 5.0

    return NoisyServer(boundary=boundary, latency=latency, noise=noise)


def search_boundary(
    server: NoisyServer, seed: int, search: LoadSearch = SEARCH
) -> tuple[LoadBoundary, list[Probe]]:
    drawn = random.Random(f"noise:{seed}")
    levels: list[Probe] = []
    while (load := next_load(search, levels, len(levels))) is not None:
        levels.append(server.measure(load, drawn))
    return boundary_of(search, levels), levels
