"""What an engine is, and how its command is written.

A task names an engine and gives parameters; the program, the address and the served name are ours.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.errors import ErrorCode
from schemas.executor.engine_rules import EngineRules, TaskField
from shared.engines.arguments import arguments_of
from shared.engines.check import check_value, flag_named
from shared.engines.flags import Flag, render
from shared.engines.ranks import RankFlags
from shared.engines.values import bad_parameter
from shared.errors import RefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """What to start, without a shell. `env` is added to the environment that the runtime builds.

    `announces_address`: started on port 0 it prints `listening on http://HOST:PORT`.
    """

    engine: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    readiness_path: str
    served_model_name: str
    simulated: bool
    announces_address: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One row. A task may give it its declared `flags`, what is on the list `allow_list`, and what
    the operator has `allowed`, in which "*" is whatever the engine knows.

    `owned` are parameters that only the executor sets; `loads_code` those by which a task would
    have the engine import or download code, refused for the reason `code_refusal` unless the
    operator allows them by name.

    `task_fields` say how fields of a task's `quant_config` and `parallel_config` are written.
    `plain_switches` are those without a `--no-` form, although others have one.

    `model_flag` None puts the model first, without a flag; `hub_flag` is the one for a model that
    is no path, where it differs. A `name_flag`, `host_flag` or `port_flag` of None is left out.
    `tls_flags` name the files of its key and certificate; None: it speaks plain HTTP alone.
    `rank_flags` make it one of several ranks on as many nodes; None: it serves on one node only.
    """

    name: str
    program: tuple[str, ...]
    missing: Callable[[], str | None]
    owned: frozenset[str]
    model_flag: str | None = "--model"
    hub_flag: str | None = None
    name_flag: str | None = "--served-model-name"
    host_flag: str | None = "--host"
    port_flag: str | None = "--port"
    tls_flags: tuple[str, str] | None = None
    readiness_path: str = "/health"
    task_fields: Mapping[str, TaskField] = field(default_factory=dict)
    flags: tuple[Flag, ...] | None = None
    allow_list: str = ""
    allowed: frozenset[str] = frozenset()
    has_negative_switches: bool = True
    plain_switches: frozenset[str] = frozenset()
    has_underscores: bool = False
    loads_code: frozenset[str] = frozenset()
    code_refusal: str = "which a process does not isolate"
    env: tuple[tuple[str, str], ...] = ()
    simulated: bool = False
    announces_address: bool = False
    rank_flags: RankFlags | None = None

    @property
    def rules(self) -> EngineRules:
        """The rules for parameters of a task, as the executor's offer states them."""
        owned = self.owned | {flag.lstrip("-") for flag in self.tls_flags or ()}
        refused = {"is set by the executor, not by a task": tuple(sorted(owned))}
        if self.loads_code - self.allowed:
            reason = f"would make {self.name} load code, {self.code_refusal}"
            refused[reason] = tuple(sorted(self.loads_code - self.allowed))
        return EngineRules(
            parameters=tuple(flag.parameter for flag in self.flags or ()),
            is_closed=self.flags is not None and not self.allow_list,
            refused=refused,
            task_fields=dict(self.task_fields),
            allow_list=self.allow_list,
            allowed=tuple(sorted(self.allowed)),
        )

    def model_arguments(self, model: str, name: str) -> list[str]:
        """The model, and the name to serve it under."""
        is_path = model.startswith("/")
        flag = self.model_flag if is_path or self.hub_flag is None else self.hub_flag
        return [
            *([model] if flag is None else [flag, model]),
            *([] if self.name_flag is None else [self.name_flag, name]),
        ]

    def address_arguments(self, host: str, port: int) -> list[str]:
        """Return the arguments for host and port of the server."""
        return [
            *([] if self.host_flag is None else [self.host_flag, host]),
            *([] if self.port_flag is None else [self.port_flag, str(port)]),
        ]

    def tls_arguments(self, key: str, certificate: str) -> list[str]:
        """Return the arguments by which the server speaks TLS alone. Raises RefusedError."""
        if self.tls_flags is None:
            raise RefusedError(
                ErrorCode.UNSUPPORTED, f"{self.name} serves no HTTPS", path="$.base_runtime"
            )
        key_flag, certificate_flag = self.tls_flags
        return [key_flag, key, certificate_flag, certificate]


def command_of(
    engine: Engine,
    model: str,
    parameters: Mapping[str, Any],
    *,
    port: int,
    host: str,
    served_model_name: str | None = None,
    rank_parameters: Mapping[str, Any] | None = None,
    tls_files: tuple[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> EngineCommand:
    """The command that serves `model` on host:port as `served_model_name` (default: `model`).

    With `tls_files`, of a key and its certificate, it speaks TLS alone. `variables` are the task's,
    of the engine's environment.

    `rank_parameters` are the executor's own: they may be what a task may not set, and win over it.

    Raises RefusedError for a parameter that is unknown, malformed, given twice in two spellings, or
    not a task's to set.
    """
    if not model or model.startswith("-"):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a model's name or path, got {model!r}",
            path="$.model.id_or_path",
        )
    name = served_model_name or model
    if "\0" in model + name:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected a model's name or path, got one with a NUL character",
            path="$.model.id_or_path",
        )
    arguments: dict[str, list[str]] = {}
    rules = engine.rules
    for spelling, value in parameters.items():
        flag = flag_named(rules, spelling)
        if flag in arguments:
            raise bad_parameter(spelling, f"{spelling!r} is given twice, in two spellings")
        arguments[flag] = _arguments(engine, rules, spelling, flag, value)
        if any("\0" in element for element in arguments[flag]):
            raise bad_parameter(spelling, "expected a value without a NUL character")
    for spelling, value in (rank_parameters or {}).items():
        flag = spelling.replace("_", "-")
        arguments[flag] = [] if value is None else _open_arguments(engine, spelling, value)
    task_arguments = [element for elements in arguments.values() for element in elements]
    # The address comes last: parsers take the last of two, so no parameter can move the server.
    address = engine.address_arguments(host, port)
    if tls_files is not None:
        address += engine.tls_arguments(*tls_files)
    argv = (*engine.program, *engine.model_arguments(model, name), *task_arguments, *address)
    return EngineCommand(
        engine=engine.name,
        argv=argv,
        env={**_check_variables(engine, variables or {}), **dict(engine.env)},
        readiness_path=engine.readiness_path,
        served_model_name=name,
        simulated=engine.simulated,
        announces_address=engine.announces_address,
    )


def _check_variables(engine: Engine, variables: Mapping[str, str]) -> Mapping[str, str]:
    """Raise RefusedError for a variable that the operator sets: it would change nothing."""
    for name, _ in engine.env:
        if name in variables:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"{name} is set by the operator of this node for {engine.name}, not by a task",
                path=f"$.env.{name}",
            )
    return variables


def _arguments(
    engine: Engine, rules: EngineRules, spelling: str, flag: str, value: object
) -> list[str]:
    checked_value = check_value(engine.name, rules, spelling, flag, value)
    if checked_value is None:
        return []
    declared_parameter = next(
        (parameter for parameter in rules.parameters if parameter.name == flag), None
    )
    if declared_parameter is None:
        return _open_arguments(engine, spelling, checked_value)
    return render(declared_parameter, checked_value)


def _open_arguments(engine: Engine, spelling: str, value: object) -> list[str]:
    return arguments_of(
        spelling,
        value,
        has_negative_switches=engine.has_negative_switches,
        plain_switches=engine.plain_switches,
        has_underscores=engine.has_underscores,
    )
