"""What a client of the gateway has to expect."""

from schemas.errors import ErrorCode
from schemas.gateway.problem import Problem
from shared.errors import RefusedError, UnavailableError


class PlatformUnreachable(UnavailableError):
    """Nothing answers where the platform should be. `is_startable`: it could be started here."""

    def __init__(self, message: str, *, is_startable: bool = True) -> None:
        super().__init__(message)
        self.is_startable = is_startable


class ApiError(RefusedError):
    """The gateway refused. `problem` is its RFC 9457 answer; `is_passing`: it asks to come again
    (Retry-After), because what it lacks is being started.
    """

    def __init__(self, problem: Problem, *, is_passing: bool = False) -> None:
        self.problem, self.is_passing = problem, is_passing
        code = _code_of(problem)
        super().__init__(code, problem.detail, path=problem.path, details=problem.details)


def _code_of(problem: Problem) -> ErrorCode:
    try:
        return ErrorCode(problem.code)
    except ValueError:
        return ErrorCode.INTERNAL
