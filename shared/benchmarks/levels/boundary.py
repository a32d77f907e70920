"""The greatest load that meets the constraints: which load is measured next, and where it lies.

A level's margin is how far its worst constraint is from its bound, as a share of it: above 0 where
all are met. Loads grow until one is missed, then the bracket is bisected. Margins fall with the
load, so what noise turned around is smoothed (isotonic regression), and measured again.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.task.benchmark import LoadBoundary, LoadKind, LoadSearch

SMALLEST_ERROR: Final = 0.02  # runs of one engine differ by more than their requests do
SURE: Final = 2.0  # standard errors
ROOMY: Final = 0.5  # with so much margin the next load is four times as large, not twice
CLIFF: Final = 0.5  # the fall of the margin within a narrow bracket
TRIES_AT_MIN: Final = 4


class Probe(Struct, frozen=True, kw_only=True):
    """What a level says of its load, or all levels of it; `error` is of the margin."""

    load: float
    margin: float
    error: float = 0.0
    levels: int = 1

    @property
    def is_met(self) -> bool:
        return self.margin - SURE * self.error > 0

    @property
    def is_missed(self) -> bool:
        return self.margin + SURE * self.error < 0


class Bracket(Struct, frozen=True, kw_only=True):
    """Loads by their smoothed margins: `met` and `missed` beyond doubt, `above` and `below` 0."""

    met: Probe | None
    above: Probe | None
    below: Probe | None
    missed: Probe | None


def next_load(search: LoadSearch, levels: Sequence[Probe], spent: int) -> float | None:
    """Return the next load to measure; None if the bracket is narrow enough or cannot become so.

    `spent` is the number of levels measured so far, with those that said nothing.
    """
    if spent >= search.max_levels:
        return None
    if not levels:
        return search.min
    probes = _below_first_miss(_pool_probes(levels))
    bracket = _bracket(probes)
    if bracket.above is None and probes[0].load <= search.min:
        tries = probes[0].levels
        is_over = tries >= TRIES_AT_MIN or (tries > 1 and probes[0].is_missed)
        return None if is_over else search.min
    load = _next(search, probes, bracket)
    return None if load is None else _round_load(search, load)


def boundary_of(search: LoadSearch, levels: Sequence[Probe]) -> LoadBoundary:
    probes = _pool_probes(levels)
    monotone = _below_first_miss(probes)
    bracket = _bracket(monotone)
    above, below = bracket.above, bracket.below
    low = bracket.met.load if bracket.met is not None else None
    high = bracket.missed.load if bracket.missed is not None else None
    estimate = None
    if above is not None:
        estimate = above.load if below is None else _crossing(above, below)
        estimate = min(max(estimate, low or 0.0), high or math.inf)
    return LoadBoundary(
        load=search.load,
        low=low,
        high=high,
        estimate=estimate,
        cliff=_is_cliff(search, bracket),
        non_monotone=any(probe.is_met for probe in probes[len(monotone) :]),
    )


def _next(search: LoadSearch, probes: Sequence[Probe], bracket: Bracket) -> float | None:
    last = probes[-1]
    above, below = bracket.above, bracket.below
    if below is None:
        is_last = last.load >= search.max
        return None if is_last else last.load * (4 if last.margin > ROOMY else 2)
    if above is None:
        return probes[0].load / 4
    if not _is_narrow(search, above.load, below.load):
        return math.sqrt(above.load * below.load)
    if below.levels == 1 and _is_cliff(search, bracket):
        return below.load  # one slow moment of the engine looks the same
    low = bracket.met.load if bracket.met is not None else search.min
    if bracket.missed is None:
        return last.load * (1 + search.tolerance)
    high = bracket.missed.load
    if _is_narrow(search, low, high):
        return None
    is_low_wider = above.load / low >= high / below.load
    return math.sqrt(low * above.load if is_low_wider else below.load * high)


def _bracket(probes: Sequence[Probe]) -> Bracket:
    smooth = _isotonic(probes)
    return Bracket(
        met=max((e for e in smooth if e.is_met), key=_load, default=None),
        above=max((e for e in smooth if e.margin > 0), key=_load, default=None),
        below=min((e for e in smooth if e.margin <= 0), key=_load, default=None),
        missed=min((e for e in smooth if e.is_missed), key=_load, default=None),
    )


def _load(probe: Probe) -> float:
    return probe.load


def _is_narrow(search: LoadSearch, low: float, high: float) -> bool:
    is_next = search.load is LoadKind.CONCURRENCY and high - low <= 1
    return is_next or high <= low * (1 + search.tolerance)


def _is_cliff(search: LoadSearch, bracket: Bracket) -> bool:
    above, below = bracket.above, bracket.below
    if above is None or below is None:
        return False
    is_steep = above.margin - below.margin > CLIFF
    return is_steep and _is_narrow(search, above.load, below.load)


def _crossing(above: Probe, below: Probe) -> float:
    """Return the load at which the margin crosses 0, assumed linear in the logarithm of the
    load.
    """
    share = above.margin / (above.margin - below.margin)
    # Rounded, it may come out beyond the load below it.
    return min(above.load * math.pow(below.load / above.load, share), below.load)


def _round_load(search: LoadSearch, load: float) -> float:
    rounded = round(load) if search.load is LoadKind.CONCURRENCY else float(f"{load:.4g}")
    return min(max(float(rounded), search.min), search.max)


def _pool_probes(levels: Sequence[Probe]) -> list[Probe]:
    """Return one probe for each load, rising. Levels that differ by more than their errors raise
    the error.
    """
    by_load: dict[float, list[Probe]] = {}
    for level in levels:
        probe = replace(level, error=max(level.error, SMALLEST_ERROR))
        by_load.setdefault(level.load, []).append(probe)
    pooled = []
    for load in sorted(by_load):
        mean = _mean(by_load[load])
        margins = [probe.margin for probe in by_load[load]]
        spread = statistics.stdev(margins) / math.sqrt(len(margins)) if len(margins) > 1 else 0.0
        pooled.append(replace(mean, load=load, error=max(mean.error, spread)))
    return pooled


def _below_first_miss(probes: Sequence[Probe]) -> Sequence[Probe]:
    """Return the probes up to the first that missed beyond doubt: larger loads that met do not
    count.
    """
    place = next((n for n, probe in enumerate(probes, start=1) if probe.is_missed), len(probes))
    return probes[:place]


def _isotonic(probes: Sequence[Probe]) -> list[Probe]:
    """The margins that never rise with the load and are nearest to these, by weighted squares
    (pool adjacent violators).
    """
    blocks: list[list[Probe]] = []
    for probe in probes:
        blocks.append([probe])
        while len(blocks) > 1 and _mean(blocks[-2]).margin < _mean(blocks[-1]).margin:
            last = blocks.pop()
            blocks[-1] += last
    return [
        replace(probe, margin=mean.margin, error=mean.error)
        for block in blocks
        for mean in [_mean(block)]
        for probe in block
    ]


def _mean(probes: Sequence[Probe]) -> Probe:
    """Weighted by how sure they are."""
    weights = [probe.error**-2 for probe in probes]
    total = math.fsum(weights)
    margin = math.fsum(w * probe.margin for w, probe in zip(weights, probes, strict=True)) / total
    levels = sum(probe.levels for probe in probes)
    return Probe(load=probes[0].load, margin=margin, error=total**-0.5, levels=levels)
