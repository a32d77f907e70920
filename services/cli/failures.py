"""How a command ends when something is not as it should be: one sentence and an exit code."""

import sys
from collections.abc import Sequence
from typing import Final

import click
import msgspec

from schemas.errors import EXIT_CODE, HTTP_STATUS, ErrorCode
from schemas.gateway.problem import Problem
from shared.client.errors import ApiError, PlatformUnreachable
from shared.errors import MISTAKES, RefusedError, StewardError, UnavailableError
from shared.near_words import did_you_mean

LEASE_LOST_EXIT_CODE: Final = 75
_HINTS: Final = {
    ErrorCode.UNAUTHENTICATED: (
        "sign in with `gpusteward login URL`, or give a token with --token or GPUSTEWARD_TOKEN"
    ),
    ErrorCode.NOT_FOUND: (
        "`gpusteward tasks`, `experiments`, `reservations`, `nodes` and `gpus` list what there is"
    ),
    ErrorCode.UNSUPPORTED: "`gpusteward validate FILE` shows what is missing",
}


class CommandFailed(RefusedError):
    """Something that this command itself found wrong, with what to do next."""


def report(error: StewardError | OSError, arguments: Sequence[str]) -> int:
    """Print the error on stderr, as problem JSON if `--json` was given; return the exit code."""
    problem = problem_of(error)
    if wants_json(arguments):
        click.echo(msgspec.json.encode(problem).decode(), err=True)
    else:
        click.echo(f"gpusteward: {sentence(problem)}", err=True)
    return EXIT_CODE[ErrorCode(problem.code)]


def problem_of(error: StewardError | OSError) -> Problem:
    """The error as the API would report it."""
    if isinstance(error, ApiError) and error.problem.code in {code.value for code in ErrorCode}:
        return error.problem
    code, path = ErrorCode.INTERNAL, None
    if isinstance(error, RefusedError):
        code, path = error.code, error.path
    elif isinstance(error, UnavailableError):
        code = ErrorCode.UNAVAILABLE
    is_startable = isinstance(error, PlatformUnreachable) and error.is_startable
    hint = "; start it with `gpusteward up`" if is_startable else ""
    return Problem(
        type="about:blank",
        title=code.value.replace("_", " "),
        status=HTTP_STATUS[code],
        detail=f"{error}{hint}",
        code=code.value,
        path=path,
        details=error.details if isinstance(error, RefusedError) else {},
    )


def sentence(problem: Problem) -> str:
    """Say what is wrong, where, and what to do about it, with a line for each mistake."""
    if mistakes := problem.details.get(MISTAKES):
        lines = [f"  {mistake['path']}: {mistake['message']}" for mistake in mistakes]
        return "\n".join([f"{len(mistakes)} mistakes:", *lines])
    path = problem.path or ""
    where = f" (at {path})" if path.startswith("$") and path not in problem.detail else ""
    hint = None if "`gpusteward " in problem.detail else _HINTS.get(ErrorCode(problem.code))
    return f"{problem.detail}{where}" + (f"; {hint}" if hint else "")


def in_plain_words(error: click.ClickException) -> click.ClickException:
    """Return the error with what was expected, and the word that may have been meant."""
    if isinstance(error, click.MissingParameter) or not isinstance(error, click.BadParameter):
        return error
    if error.param is None:
        return error
    message = error.message
    match error.param.type:
        case click.Choice(choices=choices) if "did you mean" not in message:
            word = message.partition("'")[2].partition("'")[0]
            message = message.removesuffix(".") + did_you_mean(word, map(str, choices))
        case click.types.IntParamType() if "is not a valid integer" in message:
            message = _number_expected("a whole number", error)
        case click.types.FloatParamType() if "is not a valid float" in message:
            message = _number_expected("a number", error)
    return click.BadParameter(message, error.ctx, error.param, error.param_hint)


def _number_expected(what: str, error: click.BadParameter) -> str:
    kind = error.param.type if error.param is not None else None
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    bounds = [f">= {low}"] if low is not None else []
    bounds += [f"<= {high}"] if high is not None else []
    value = error.message.partition(" is not a valid")[0]
    return f"expected {what}{' ' if bounds else ''}{' and '.join(bounds)}, got {value}"


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether `--json` is among our own arguments, not among those behind `--`."""
    own_arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own_arguments


def leave(code: int) -> None:
    """End the command with an exit code other than 0."""
    if code:
        sys.exit(code)
