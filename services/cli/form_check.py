"""A task file checked without a platform: its form, and the flags of engines that we know."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.task.parameters import ContinuousRange, IntegerRange
from schemas.task.task_file import TaskFile
from shared.benchmarks.verdicts.constraints import parse_constraints
from shared.engines.allow_list import AllowList, fitting
from shared.engines.table import ALLOW_LISTS, PROFILES
from shared.errors import Mistakes, RefusedError, rename_paths, together
from shared.gpu.sizing import degree_named
from shared.near_words import nearest
from shared.task_files.configurations import check_configurations
from shared.task_files.engines import check_engines, engine_files
from shared.task_files.form import form_of

ENGINES: Final = tuple(PROFILES)  # what every platform knows; an operator may have others


class FormCheck(Struct, frozen=True, kw_only=True):
    """A task file without mistakes, and `unknown` names of it that only a platform can judge."""

    task: TaskFile
    unknown: tuple[str, ...] = ()


class _Flag(NamedTuple):
    """A parameter with the values that a task gives it, and where they stand."""

    name: str
    values: Sequence[Any]
    path: str


def check_form(document: bytes) -> FormCheck:
    """Raise RefusedError with every mistake that can be seen without a platform."""
    form = form_of(document)
    if form.mistakes:
        raise together(form.mistakes)
    task = msgspec.json.decode(form.body, type=TaskFile)
    mistakes = Mistakes()
    with mistakes.collect():
        parse_constraints(task.optimization.constraints)
    with mistakes.collect():
        check_engines(task)
    unknown: list[str] = []
    for source in engine_files(task):
        engine_mistakes = Mistakes()
        unknown += _check_engine(source.file, engine_mistakes)
        with mistakes.collect(), rename_paths(partial(source.find_path, task)):
            engine_mistakes.refuse()
    mistakes.refuse()
    return FormCheck(task=task, unknown=tuple(dict.fromkeys(unknown)))


def _check_engine(task: TaskFile, mistakes: Mistakes) -> Iterator[str]:
    """Yield what only a platform knows of a task with one engine; collect its mistakes."""
    if task.configurations is not None:
        with mistakes.collect():
            check_configurations(task.configurations, task.parameters)
    engine = task.base_runtime
    with mistakes.collect():
        _refuse_misspelt(engine, ENGINES, "$.base_runtime", "is no engine that is known here")
    if engine not in ENGINES:
        yield f"engine {engine}"
    listed = next(
        (allow_list for allow_list in ALLOW_LISTS.values() if allow_list.engine == engine), None
    )
    for flag in _flags(task) if listed is not None else ():
        with mistakes.collect():
            if listed is not None and not _is_checked(listed, flag):
                yield f"flag {flag.name}"
    yield from (f"variable {name}" for name in task.env)


def _flags(task: TaskFile) -> Iterator[_Flag]:
    for name, given_values in task.parameters.items():
        values: Sequence[Any] = ()
        if not isinstance(given_values, IntegerRange | ContinuousRange):
            values = given_values if isinstance(given_values, tuple) else given_values.values
        yield _Flag(name, values, f"$.parameters.{name}")
    for place, row in enumerate(task.configurations or ()):
        for name, value in row.items():
            yield _Flag(name, (value,), f"$.configurations[{place}].{name}")


def _is_checked(listed: AllowList, flag: _Flag) -> bool:
    """Raise RefusedError for a misspelt flag, or a value that does not fit; return False for a flag
    that is not listed, which an operator may allow.
    """
    if degree_named(flag.name) is not None:
        return True
    hyphenate = flag.name.replace("_", "-")
    form = listed.form_of(hyphenate)
    if form is None:
        what = f"is no flag of {listed.engine} {listed.version} that is known here"
        _refuse_misspelt(hyphenate, listed.forms, flag.path, what)
        return False
    for value in flag.values:
        try:
            if value is not None:
                fitting(form, flag.name, value)
        except RefusedError as error:
            raise RefusedError(error.code, error.message, path=flag.path) from None
    return True


def _refuse_misspelt(word: str, known_words: Iterable[str], path: str, what: str) -> None:
    suggestion = nearest(word, known_words)
    if suggestion is not None and suggestion != word:
        message = f"{word!r} {what}; did you mean {suggestion!r}?"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
