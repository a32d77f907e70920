"""Values of known form: an integer, a number, a switch or one of some words."""

from typing import Final

from schemas.errors import ErrorCode
from schemas.executor.engine_rules import EngineParameter, ParameterKind
from shared.errors import RefusedError

_WORDS: Final = {
    ParameterKind.INTEGER: "an integer",
    ParameterKind.NUMBER: "a number",
    ParameterKind.SWITCH: "true or false",
}


def bad_parameter(spelling: str, message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=f"$.parameters.{spelling}")


def fitting_value(
    parameter: EngineParameter, spelling: str, value: object
) -> bool | int | float | str:
    """The value, read from text where it is text. Raises RefusedError if it does not fit."""
    try:
        return read_value(parameter, value)
    except ValueError as error:
        expected_value = expectation(parameter)
        raise bad_parameter(spelling, f"expected {expected_value}, got {value!r}") from error


def expectation(parameter: EngineParameter) -> str:
    """Say in words what a value has to be."""
    if parameter.kind is ParameterKind.CHOICE:
        return f"one of {', '.join(parameter.choices)}"
    low = "" if parameter.minimum is None else f" >= {parameter.minimum:g}"
    high = "" if parameter.maximum is None else f"{' and' if low else ''} <= {parameter.maximum:g}"
    return f"{_WORDS[parameter.kind]}{low}{high}"


def read_value(parameter: EngineParameter, value: object) -> bool | int | float | str:
    """Return the parsed value; numbers and switches may come as text. Raises ValueError."""
    text = str(value).lower()
    if parameter.kind is ParameterKind.SWITCH:
        if not isinstance(value, (bool, str)) or text not in {"true", "false"}:
            raise ValueError(repr(value))
        return text == "true"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(repr(value))  # noqa: TRY004  # one error for every misfit
    if parameter.kind is ParameterKind.CHOICE:
        matching = [choice for choice in parameter.choices if choice.lower() == text]
        if not matching:
            raise ValueError(repr(value))
        return matching[0]
    number = int(text) if parameter.kind is ParameterKind.INTEGER else float(text)
    too_low = parameter.minimum is not None and not number >= parameter.minimum
    if too_low or (parameter.maximum is not None and not number <= parameter.maximum):
        raise ValueError(repr(value))
    return number
