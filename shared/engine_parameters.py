"""What a task may give to an engine, checked where tasks are accepted and where it starts."""

import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.engine_rules import EngineParameter, EngineRules, ParameterKind
from schemas.errors import ErrorCode
from shared.errors import RefusedError

PARAMETER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WORDS: Final = {
    ParameterKind.INTEGER: "an integer",
    ParameterKind.NUMBER: "a number",
    ParameterKind.SWITCH: "true or false",
}


def check_parameters(engine: str, rules: EngineRules, parameters: Mapping[str, Any]) -> None:
    """Raises RefusedError for the first parameter that the engine would not be given, by path."""
    given: set[str] = set()
    for spelling, value in parameters.items():
        flag = flag_named(rules, spelling)
        if flag in given:
            raise bad_parameter(spelling, f"{spelling!r} is given twice, in two spellings")
        given.add(flag)
        known = declared(engine, rules, spelling, flag)
        if known is not None and value is not None:
            fitting_value(known, spelling, value)


def bad_parameter(spelling: str, message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=f"$.parameters.{spelling}")


def flag_named(rules: EngineRules, spelling: str) -> str:
    """The hyphenated name; underscores and hyphens are the same.

    Raises RefusedError for what is no name, and for what is not a task's to set.
    """
    if not PARAMETER_NAME.fullmatch(spelling):
        raise bad_parameter(spelling, f"expected a parameter name, got {spelling!r}")
    flag = spelling.replace("_", "-")
    for reason, names in rules.refused.items():
        # Parsers take a unique beginning for the whole flag, so a beginning counts as the flag.
        if any(name.startswith(flag) for name in names):
            raise bad_parameter(spelling, f"{spelling!r} {reason}")
    return flag


def declared(engine: str, rules: EngineRules, spelling: str, flag: str) -> EngineParameter | None:
    """The parameter of known form. Raises RefusedError for one that a closed set has not."""
    found = next((each for each in rules.parameters if each.name == flag), None)
    if found is None and rules.is_closed:
        known = ", ".join(each.name for each in rules.parameters)
        raise bad_parameter(spelling, f"{engine} has no parameter {spelling!r}; known: {known}")
    return found


def fitting_value(
    parameter: EngineParameter, spelling: str, value: object
) -> bool | int | float | str:
    """The value, read from text where it is text. Raises RefusedError if it does not fit."""
    try:
        return read_value(parameter, value)
    except ValueError as error:
        wanted = expected(parameter)
        raise bad_parameter(spelling, f"expected {wanted}, got {value!r}") from error


def expected(parameter: EngineParameter) -> str:
    """What a value has to be, in words."""
    if parameter.kind is ParameterKind.CHOICE:
        return f"one of {', '.join(parameter.choices)}"
    low = "" if parameter.minimum is None else f" >= {parameter.minimum:g}"
    high = "" if parameter.maximum is None else f"{' and' if low else ''} <= {parameter.maximum:g}"
    return f"{_WORDS[parameter.kind]}{low}{high}"


def read_value(parameter: EngineParameter, value: object) -> bool | int | float | str:
    """What a value stands for; numbers and switches may come as text. Raises ValueError."""
    text = str(value).lower()
    if parameter.kind is ParameterKind.SWITCH:
        if not isinstance(value, (bool, str)) or text not in {"true", "false"}:
            raise ValueError(repr(value))
        return text == "true"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(repr(value))  # noqa: TRY004  # one error for every misfit
    if parameter.kind is ParameterKind.CHOICE:
        if text not in parameter.choices:
            raise ValueError(repr(value))
        return text
    number = int(text) if parameter.kind is ParameterKind.INTEGER else float(text)
    too_low = parameter.minimum is not None and not number >= parameter.minimum
    if too_low or (parameter.maximum is not None and not number <= parameter.maximum):
        raise ValueError(repr(value))
    return number
