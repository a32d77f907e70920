"""Presets of parameters: how several become one, and what a task takes of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.orchestrator.presets import MergedPresets, PresetConflict, PresetView
from schemas.task.parameters import ContinuousRange, IntegerRange, ParameterValues
from schemas.task.task_file import PresetMerge, TaskFile
from services.orchestrator.domain.plan.expansion import MOST_VALUES
from shared.errors import RefusedError
from shared.task_files.configurations import meaning_of

MOST_PARAMETERS: Final = 64  # of a task


class _Given(Struct, frozen=True):
    """One preset's values of a parameter, and how it spells it."""

    preset: str
    name: str
    values: ParameterValues


def merge(presets: Sequence[PresetView], how: PresetMerge, path: str) -> MergedPresets:
    """Parameters in the order in which they are first given, spelled as they are there.

    Two spellings of one parameter are one. Raises RefusedError for presets of different engines,
    for values that cannot be merged so, and where nothing is left.
    """
    engine = _one_engine(presets, path)
    given: dict[str, list[_Given]] = {}
    for preset in presets:
        for name, values in preset.parameters.items():
            given.setdefault(meaning_of(name), []).append(_Given(preset.name, name, values))
    parameters: dict[str, ParameterValues] = {}
    conflicts = []
    for meaning, own in given.items():
        if how is PresetMerge.INTERSECTION and len(own) < len(presets):
            continue
        name = own[0].name
        parameters[name] = _merged(own, how, path)
        if any(_values(each.values) != _values(own[0].values) for each in own):
            conflicts.append(
                PresetConflict(
                    parameter=name,
                    presets=tuple(each.preset for each in own),
                    outcome=_outcome(meaning, own, how),
                )
            )
    if not parameters:
        names = ", ".join(preset.name for preset in presets)
        raise _refused(f"expected presets with a parameter in common, got {names}", path)
    return MergedPresets(
        parameters=parameters,
        engine=engine,
        conflicts=tuple(conflicts),
        presets=tuple(preset.name for preset in presets),
        revisions=tuple(preset.revision for preset in presets),
        how=how,
    )


def with_parameters_of(task: TaskFile, merged: MergedPresets) -> tuple[TaskFile, list[str]]:
    """The task that names no presets any more, and has their parameters; with notes.

    What the task gives itself goes before theirs, in whichever spelling.
    """
    own = {meaning_of(name): ("parameters", name) for name in task.parameters}
    if task.configurations is not None:
        own |= {meaning_of(name): ("configurations", name) for name in task.configurations[0]}
    taken = {n: values for n, values in merged.parameters.items() if meaning_of(n) not in own}
    notes = [_taken_note(merged, taken)]
    notes += [f"presets: {each.outcome}" for each in merged.conflicts if each.parameter in taken]
    notes += [
        f"{'.'.join(own[meaning_of(name)])} takes the place of {name!r} of the presets"
        for name in merged.parameters
        if name not in taken
    ]
    parameters = {**taken, **task.parameters}
    if len(parameters) > MOST_PARAMETERS:
        message = f"expected at most {MOST_PARAMETERS} parameters together, got {len(parameters)}"
        raise _refused(message, "$.presets")
    changed = replace(task, parameters=parameters, presets=(), preset_merge=PresetMerge.LAST_WINS)
    return changed, notes


def _taken_note(merged: MergedPresets, taken: Mapping[str, object]) -> str:
    of = ", ".join(
        f"{name!r} of this release" if not revision else f"{name!r} (revision {revision})"
        for name, revision in zip(merged.presets, merged.revisions, strict=True)
    )
    return f"presets {of}: {', '.join(taken) or 'no parameter that the task does not give itself'}"


def _one_engine(presets: Sequence[PresetView], path: str) -> str | None:
    engines = {preset.engine: preset.name for preset in presets if preset.engine is not None}
    if len(engines) > 1:
        found = ", ".join(f"{name!r} is of {engine}" for engine, name in engines.items())
        raise _refused(f"expected presets of one engine: {found}", path)
    return next(iter(engines), None)


def _merged(own: Sequence[_Given], how: PresetMerge, path: str) -> ParameterValues:
    last = own[-1].values
    if how is PresetMerge.LAST_WINS or all(_values(e.values) == _values(last) for e in own):
        return last
    lists = [_values(each.values) for each in own]
    if how is PresetMerge.UNION:
        if any(isinstance(each, IntegerRange | ContinuousRange) for each in lists):
            raise _refused(f"expected lists of values to unite, {own[0].name} has a range", path)
        united = _distinct(value for values in lists for value in values)
        if len(united) > MOST_VALUES:
            message = f"expected at most {MOST_VALUES} values of {own[0].name}, got {len(united)}"
            raise _refused(message, path)
        return united
    return _in_common(own, lists, path)


def _in_common(own: Sequence[_Given], lists: Sequence[Any], path: str) -> ParameterValues:
    """Of the first list what all others have; a list may meet a range."""
    first = next((each for each in lists if isinstance(each, tuple)), None)
    if first is None:
        raise _refused(f"expected a list of values of {own[0].name}, found ranges alone", path)
    left = _distinct(v for v in first if all(_has(each, v) for each in lists))
    if not left:
        names = ", ".join(each.preset for each in own)
        raise _refused(f"presets {names} have no value of {own[0].name} in common", path)
    return left


def _has(values: Any, value: Any) -> bool:
    match values:
        case IntegerRange(low=low, high=high, step=step):
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            return is_whole and value in range(low, high + 1, step or 1)
        case ContinuousRange(low=low, high=high):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return is_number and low <= value <= high
    return any(type(each) is type(value) and each == value for each in values)


def _outcome(meaning: str, own: Sequence[_Given], how: PresetMerge) -> str:
    names = ", ".join(repr(each.preset) for each in own)
    match how:
        case PresetMerge.LAST_WINS:
            return f"{meaning} is that of {own[-1].preset!r}, of {names}"
        case PresetMerge.UNION:
            return f"{meaning} has all values of {names}"
        case PresetMerge.INTERSECTION:
            return f"{meaning} has the values that {names} share"


def _values(values: ParameterValues) -> Any:
    """A list in whichever form it is written, or a range."""
    if isinstance(values, tuple | IntegerRange | ContinuousRange):
        return values
    return values.values


def _distinct(values: Any) -> tuple[Any, ...]:
    return tuple({(type(value), value): value for value in values}.values())


def _refused(message: str, path: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
