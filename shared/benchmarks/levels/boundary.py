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
    """What is measured after these levels, `spent` with those that said nothing; None: the bracket
    is narrow enough, or cannot be made so.
    """
    if spent >= search.max_levels:
        return None
    if not levels:
        return search.min
    known = _below_first_miss(_pooled(levels))
    found = _bracket(known)
    if found.above is None and known[0].load <= search.min:
        tries = known[0].levels
        is_over = tries >= TRIES_AT_MIN or (tries > 1 and known[0].is_missed)
        return None if is_over else search.min
    load = _next(search, known, found)
    return None if load is None else _rounded(search, load)


def boundary_of(search: LoadSearch, levels: Sequence[Probe]) -> LoadBoundary:
    known = _pooled(levels)
    monotone = _below_first_miss(known)
    found = _bracket(monotone)
    above, below = found.above, found.below
    low = found.met.load if found.met is not None else None
    high = found.missed.load if found.missed is not None else None
    estimate = None
    if above is not None:
        estimate = above.load if below is None else _crossing(above, below)
        estimate = min(max(estimate, low or 0.0), high or math.inf)
    return LoadBoundary(
        load=search.load,
        low=low,
        high=high,
        estimate=estimate,
        cliff=_is_cliff(search, found),
        non_monotone=any(each.is_met for each in known[len(monotone) :]),
    )


def _next(search: LoadSearch, known: Sequence[Probe], found: Bracket) -> float | None:
    last = known[-1]
    above, below = found.above, found.below
    if below is None:
        is_last = last.load >= search.max
        return None if is_last else last.load * (4 if last.margin > ROOMY else 2)
    if above is None:
        return known[0].load / 4
    if not _is_narrow(search, above.load, below.load):
        return math.sqrt(above.load * below.load)
    if below.levels == 1 and _is_cliff(search, found):
        return below.load  # one slow moment of the engine looks the same
    low = found.met.load if found.met is not None else search.min
    if found.missed is None:
        return last.load * (1 + search.tolerance)
    high = found.missed.load
    if _is_narrow(search, low, high):
        return None
    is_low_wider = above.load / low >= high / below.load
    return math.sqrt(low * above.load if is_low_wider else below.load * high)


def _bracket(known: Sequence[Probe]) -> Bracket:
    smooth = _isotonic(known)
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


def _is_cliff(search: LoadSearch, found: Bracket) -> bool:
    above, below = found.above, found.below
    if above is None or below is None:
        return False
    is_steep = above.margin - below.margin > CLIFF
    return is_steep and _is_narrow(search, above.load, below.load)


def _crossing(above: Probe, below: Probe) -> float:
    """Where the margin is 0 between two loads, whose logarithm it is taken to be linear in."""
    share = above.margin / (above.margin - below.margin)
    return above.load * math.pow(below.load / above.load, share)


def _rounded(search: LoadSearch, load: float) -> float:
    load = min(max(load, search.min), search.max)
    return float(round(load)) if search.load is LoadKind.CONCURRENCY else float(f"{load:.4g}")


def _pooled(levels: Sequence[Probe]) -> list[Probe]:
    """One for each load, rising. Levels that differ by more than their errors make it less sure."""
    by_load: dict[float, list[Probe]] = {}
    for level in levels:
        known = replace(level, error=max(level.error, SMALLEST_ERROR))
        by_load.setdefault(level.load, []).append(known)
    pooled = []
    for load in sorted(by_load):
        mean = _mean(by_load[load])
        margins = [each.margin for each in by_load[load]]
        spread = statistics.stdev(margins) / math.sqrt(len(margins)) if len(margins) > 1 else 0.0
        pooled.append(replace(mean, load=load, error=max(mean.error, spread)))
    return pooled


def _below_first_miss(known: Sequence[Probe]) -> Sequence[Probe]:
    """With the first load that missed beyond doubt: what a larger one met does not count."""
    place = next((n for n, each in enumerate(known, start=1) if each.is_missed), len(known))
    return known[:place]


def _isotonic(known: Sequence[Probe]) -> list[Probe]:
    """The margins that never rise with the load and are nearest to these, by weighted squares
    (pool adjacent violators).
    """
    blocks: list[list[Probe]] = []
    for each in known:
        blocks.append([each])
        while len(blocks) > 1 and _mean(blocks[-2]).margin < _mean(blocks[-1]).margin:
            last = blocks.pop()
            blocks[-1] += last
    return [
        replace(each, margin=mean.margin, error=mean.error)
        for block in blocks
        for mean in [_mean(block)]
        for each in block
    ]


def _mean(probes: Sequence[Probe]) -> Probe:
    """Weighted by how sure they are."""
    weights = [each.error**-2 for each in probes]
    total = math.fsum(weights)
    margin = math.fsum(w * each.margin for w, each in zip(weights, probes, strict=True)) / total
    levels = sum(each.levels for each in probes)
    return Probe(load=probes[0].load, margin=margin, error=total**-0.5, levels=levels)
