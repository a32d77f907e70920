"""A task over several engines, and each of them as a task of its own."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.task.parameters import Configurations
from schemas.task.task_file import TaskFile
from shared.errors import Mistakes, RefusedError
from shared.task_files.configurations import meaning_of

_OWN_MAPPINGS: Final = ("parameters", "env")


class EngineFile(Struct, frozen=True, kw_only=True):
    """The task as if it had this engine alone. `place` is the engine's in `engines`; None: the task
    has one engine, and this is it.

    It has no tags: which of them an experiment runs is a part of its configuration.
    """

    place: int | None
    file: TaskFile
    tags: tuple[str, ...] = ()

    def find_path(self, task: TaskFile, path: str | None, _: str = "") -> str | None:
        """Return where in the task stands what is at `path` of the engine's own file, whatever the
        message about it is.
        """
        if self.place is None or path is None:
            return path
        engine = task.engines[self.place]
        own_paths = [
            *("$.base_runtime", "$.runtime_image_tag"),
            *(["$.model"] if engine.model is not None else []),
            *(["$.configurations"] if engine.configurations is not None else []),
            *(["$.presets"] if engine.presets else []),
            *(f"$.{block}.{name}" for block in _OWN_MAPPINGS for name in getattr(engine, block)),
        ]
        is_own = any(_is_below(path, place) for place in own_paths)
        return f"$.engines[{self.place}]{path[1:]}" if is_own else path


def engine_files(task: TaskFile) -> Iterator[EngineFile]:
    """Yield one for each engine."""
    if not task.engines:
        yield EngineFile(place=None, file=task)
    for place, engine in enumerate(task.engines):
        file = replace(
            task,
            base_runtime=engine.base_runtime,
            engines=(),
            model=engine.model or task.model,
            env={**task.env, **engine.env},
            presets=engine.presets,
            parameters={**task.parameters, **engine.parameters},
            configurations=engine.configurations or task.configurations,
        )
        yield EngineFile(place=place, file=file, tags=engine.runtime_image_tag)


def check_engines(task: TaskFile) -> None:
    """Raise RefusedError for engines that are the same, and for what a task gives all of them and
    one of them again.
    """
    mistakes = Mistakes()
    places: dict[tuple[str, str, str | None], str] = {}
    for place, engine in enumerate(task.engines):
        path = f"$.engines[{place}]"
        model = (engine.model or task.model).id_or_path
        for number, tag in enumerate(engine.runtime_image_tag or (None,)):
            key = (engine.base_runtime.casefold(), model, tag)
            with mistakes.collect():
                if key in places:
                    where = path if tag is None else f"{path}.runtime_image_tag[{number}]"
                    _refuse(
                        f"expected engines that differ in base_runtime, model or tag: it is the"
                        f" same as {places[key]}",
                        where,
                    )
            places.setdefault(key, path)
        with mistakes.collect():
            _refuse_second(task.parameters, engine.parameters, "parameters", path)
        with mistakes.collect():
            _refuse_second(task.env, engine.env, "env", path)
        with mistakes.collect():
            _refuse_second(
                _first_row(task.configurations), engine.parameters, "configurations", path
            )
        with mistakes.collect():
            if task.configurations is not None and engine.configurations is not None:
                message = "expected configurations either of the task or of its engines"
                _refuse(message, f"{path}.configurations")
    mistakes.refuse()


def with_engines_listed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a task file in which several names or tags of engines are written as `engines`."""
    names, tags = document.get("base_runtime"), document.get("runtime_image_tag")
    if "engines" in document or not (isinstance(names, list) or isinstance(tags, list)):
        return document
    of_each, beside = {}, {}
    if tags is not None and isinstance(names, list) and len(names) > 1:
        beside["runtime_image_tag"] = tags  # of which of them it is nobody can tell: refused there
    elif tags is not None:
        of_each["runtime_image_tag"] = tags
    fields = {
        name: value
        for name, value in document.items()
        if name not in {"base_runtime", "runtime_image_tag"}
    }
    engines = [
        {"base_runtime": name, **of_each}
        for name in (names if isinstance(names, list) else [names])
    ]
    return fields | beside | {"engines": engines}


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))


def _first_row(rows: Configurations | None) -> Mapping[str, Any]:
    return rows[0] if rows else {}


def _refuse_second(
    shared: Mapping[str, Any], parameters: Mapping[str, Any], block: str, path: str
) -> None:
    names = {meaning_of(name): name for name in shared}
    for name in parameters:
        if (meaning := meaning_of(name)) in names:
            own_block = "env" if block == "env" else "parameters"
            _refuse(
                f"expected {name!r} either of all engines ({block}.{names[meaning]}) or of this"
                " one, found it in both",
                f"{path}.{own_block}.{name}",
            )


def _refuse(message: str, path: str) -> None:
    raise RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
