"""How much each parameter mattered: the share of the scores' variance between its values.

For one parameter that is the correlation ratio (eta squared): the sum of squares between the means
of its values over that of all scores. Over a whole grid the shares add up to 1 less what parameters
do together and what is noise. Where parameters were not varied independently of each other, one is
credited with what came with another.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from schemas.task.report import ParameterImportance, ValueMean

FEWEST_EXPERIMENTS: Final = 3
MOST_RANGES: Final = 4

Row = tuple[Mapping[str, Any], float]


def importance(names: Iterable[str], rows: Sequence[Row]) -> tuple[ParameterImportance, ...]:
    """Of configurations with their scores, the most important first."""
    found = [_importance_of(name, rows) for name in names]
    return tuple(sorted(found, key=lambda each: -(each.share or 0.0)))


def _importance_of(name: str, rows: Sequence[Row]) -> ParameterImportance:
    groups = _groups([(parameters.get(name), score) for parameters, score in rows])
    return ParameterImportance(
        name=name,
        share=_share(list(groups.values())),
        values=tuple(
            ValueMean(value=value, experiments=len(scores), mean_score=_mean(scores))
            for value, scores in groups.items()
        ),
    )


def _groups(pairs: Sequence[tuple[Any, float]]) -> dict[str, list[float]]:
    """Scores by value; by range where numbers are drawn so that few have one in common."""
    numbers = sorted(value for value, _ in pairs if isinstance(value, int | float))
    distinct = {repr(value) for value, _ in pairs}
    are_numbers = len(numbers) == len(pairs) and not any(isinstance(n, bool) for n in numbers)
    if not (are_numbers and len(distinct) > max(MOST_RANGES, len(pairs) // 2)):
        plain: dict[str, list[float]] = {}
        for value, score in pairs:
            plain.setdefault(str(value), []).append(score)
        return plain
    ranges = min(MOST_RANGES, len(pairs) // 2)
    ordered = sorted(pairs, key=lambda pair: pair[0])
    size = math.ceil(len(ordered) / ranges)
    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return {f"{part[0][0]:g}..{part[-1][0]:g}": [score for _, score in part] for part in parts}


def _share(groups: Sequence[Sequence[float]]) -> float | None:
    scores = [score for group in groups for score in group]
    largest = max((abs(score) for score in scores), default=0.0)
    if len(scores) < FEWEST_EXPERIMENTS or len(groups) == len(scores) or not largest:
        return None
    scaled = [[score / largest for score in group] for group in groups]
    mean = _mean([score for group in scaled for score in group])
    total = math.fsum((score - mean) ** 2 for group in scaled for score in group)
    between = math.fsum(len(group) * (_mean(group) - mean) ** 2 for group in scaled)
    return min(1.0, between / total) if total else 0.0


def _mean(scores: Sequence[float]) -> float:
    return math.fsum(scores) / len(scores)
