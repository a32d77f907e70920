"""How much each parameter mattered: the share of the scores' variance between its values.

For one parameter that is the correlation ratio (eta squared): the sum of squares between the means
of its values over that of all scores. Over a whole grid what they add up to is less than 1 by what
parameters do together and what is chance, which has a row of its own. Where parameters were not
varied independently of each other they come to more than 1 and are scaled down, each being credited
with a part of what came with another. So the shares that are known add up to 1.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from schemas.task.report import ParameterImportance, ValueMean

MIN_EXPERIMENTS: Final = 3
MAX_RANGES: Final = 4
NEGLIGIBLE: Final = 1e-9  # of rounding
JOINT_EFFECT: Final = "together, or by chance"

Row = tuple[Mapping[str, Any], float]


def importance(names: Iterable[str], rows: Sequence[Row]) -> tuple[ParameterImportance, ...]:
    """Return the share of each parameter in the variance of the scores, the most important first.

    The last is JOINT_EFFECT, with what no parameter alone explains.
    """
    alone = [_importance_of(name, rows) for name in names]
    explained = math.fsum(parameter.share or 0.0 for parameter in alone)
    if explained > 1.0:
        alone = [
            replace(parameter, share=parameter.share / explained)
            if parameter.share is not None
            else parameter
            for parameter in alone
        ]
    ordered = sorted(alone, key=lambda parameter: -(parameter.share or 0.0))
    if explained < 1.0 - NEGLIGIBLE and _is_explained(alone, rows):
        ordered.append(ParameterImportance(name=JOINT_EFFECT, share=1.0 - explained, values=()))
    return tuple(ordered)


def _is_explained(alone: Iterable[ParameterImportance], rows: Sequence[Row]) -> bool:
    """Tell whether there is a variance, and any parameter to which it could be due."""
    differ = len({score for _, score in rows}) > 1
    return differ and any(parameter.share is not None for parameter in alone)


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
    if not (are_numbers and len(distinct) > max(MAX_RANGES, len(pairs) // 2)):
        plain: dict[str, list[float]] = {}
        for value, score in pairs:
            plain.setdefault(str(value), []).append(score)
        return plain
    ranges = min(MAX_RANGES, len(pairs) // 2)
    ordered = sorted(pairs, key=lambda pair: pair[0])
    size = math.ceil(len(ordered) / ranges)
    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return {f"{part[0][0]:g}..{part[-1][0]:g}": [score for _, score in part] for part in parts}


def _share(groups: Sequence[Sequence[float]]) -> float | None:
    scores = [score for group in groups for score in group]
    largest = max((abs(score) for score in scores), default=0.0)
    if len(scores) < MIN_EXPERIMENTS or len(groups) == len(scores) or not largest:
        return None
    scaled = [[score / largest for score in group] for group in groups]
    mean = _mean([score for group in scaled for score in group])
    total = math.fsum((score - mean) ** 2 for group in scaled for score in group)
    between = math.fsum(len(group) * (_mean(group) - mean) ** 2 for group in scaled)
    return min(1.0, between / total) if total else 0.0


def _mean(scores: Sequence[float]) -> float:
    return math.fsum(scores) / len(scores)
