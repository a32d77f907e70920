"""Presets of parameters: how several become one, and what a task takes of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.orchestrator.presets import MergedPresets, PresetConflict, PresetView
from schemas.task.parameters import ContinuousRange, IntegerRange, ParameterValues
from schemas.task.task_file import PresetMerge, TaskFile
from services.orchestrator.domain.configurations import MAX_VALUES
from shared.errors import RefusedError
from shared.task_files.configurations import meaning_of

MAX_PARAMETERS: Final = 64  # of a task


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
    by_meaning: dict[str, list[_Given]] = {}
    for preset in presets:
        for name, values in preset.parameters.items():
            by_meaning.setdefault(meaning_of(name), []).append(_Given(preset.name, name, values))
    parameters: dict[str, ParameterValues] = {}
    conflicts = []
    for meaning, givens in by_meaning.items():
        if how is PresetMerge.INTERSECTION and len(givens) < len(presets):
            continue
        name = givens[0].name
        parameters[name] = _merge_values(givens, how, path)
        if any(_values(value.values) != _values(givens[0].values) for value in givens):
            conflicts.append(
                PresetConflict(
                    parameter=name,
                    presets=tuple(value.preset for value in givens),
                    outcome=_outcome(meaning, givens, how),
                )
            )
    if not parameters:
        names = ", ".join(preset.name for preset in presets)
        raise _preset_refusal(f"expected presets with a parameter in common, got {names}", path)
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
    places = {meaning_of(name): ("parameters", name) for name in task.parameters}
    if task.configurations is not None:
        places |= {meaning_of(name): ("configurations", name) for name in task.configurations[0]}
    added = {n: values for n, values in merged.parameters.items() if meaning_of(n) not in places}
    notes = [_note_taken(merged, added)]
    notes += [
        f"presets: {conflict.outcome}"
        for conflict in merged.conflicts
        if conflict.parameter in added
    ]
    notes += [
        f"{'.'.join(places[meaning_of(name)])} takes the place of {name!r} of the presets"
        for name in merged.parameters
        if name not in added
    ]
    parameters = {**added, **task.parameters}
    if len(parameters) > MAX_PARAMETERS:
        message = f"expected at most {MAX_PARAMETERS} parameters together, got {len(parameters)}"
        raise _preset_refusal(message, "$.presets")
    changed = replace(task, parameters=parameters, presets=(), preset_merge=PresetMerge.LAST_WINS)
    return changed, notes


def _note_taken(merged: MergedPresets, parameters: Mapping[str, object]) -> str:
    of = ", ".join(
        f"{name!r} of this release" if not revision else f"{name!r} (revision {revision})"
        for name, revision in zip(merged.presets, merged.revisions, strict=True)
    )
    names = ", ".join(parameters) or "no parameter that the task does not give itself"
    return f"presets {of}: {names}"


def _one_engine(presets: Sequence[PresetView], path: str) -> str | None:
    engines = {preset.engine: preset.name for preset in presets if preset.engine is not None}
    if len(engines) > 1:
        engines_text = ", ".join(f"{name!r} is of {engine}" for engine, name in engines.items())
        raise _preset_refusal(f"expected presets of one engine: {engines_text}", path)
    return next(iter(engines), None)


def _merge_values(givens: Sequence[_Given], how: PresetMerge, path: str) -> ParameterValues:
    last = givens[-1].values
    if how is PresetMerge.LAST_WINS or all(_values(e.values) == _values(last) for e in givens):
        return last
    lists = [_values(value.values) for value in givens]
    if how is PresetMerge.UNION:
        if any(isinstance(value_list, IntegerRange | ContinuousRange) for value_list in lists):
            raise _preset_refusal(
                f"expected lists of values to unite, {givens[0].name} has a range", path
            )
        united = _distinct(value for values in lists for value in values)
        if len(united) > MAX_VALUES:
            message = f"expected at most {MAX_VALUES} values of {givens[0].name}, got {len(united)}"
            raise _preset_refusal(message, path)
        return united
    return _in_common(givens, lists, path)


def _in_common(values: Sequence[_Given], lists: Sequence[Any], path: str) -> ParameterValues:
    """Return the values of the first list that all others have; a list may meet a range."""
    first = next((value_list for value_list in lists if isinstance(value_list, tuple)), None)
    if first is None:
        raise _preset_refusal(
            f"expected a list of values of {values[0].name}, found ranges alone", path
        )
    common = _distinct(v for v in first if all(_has(value_list, v) for value_list in lists))
    if not common:
        names = ", ".join(value.preset for value in values)
        raise _preset_refusal(f"presets {names} have no value of {values[0].name} in common", path)
    return common


def _has(values: Any, value: Any) -> bool:
    match values:
        case IntegerRange(low=low, high=high, step=step):
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            return is_whole and value in range(low, high + 1, step or 1)
        case ContinuousRange(low=low, high=high):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return is_number and low <= value <= high
    return any(type(item) is type(value) and item == value for item in values)


def _outcome(meaning: str, values: Sequence[_Given], how: PresetMerge) -> str:
    names = ", ".join(repr(value.preset) for value in values)
    match how:
        case PresetMerge.LAST_WINS:
            return f"{meaning} is that of {values[-1].preset!r}, of {names}"
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


def _preset_refusal(message: str, path: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
