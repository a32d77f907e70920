"""How an attempt ended, and why an engine or a benchmark counts as failed."""

import re
from typing import Final

from msgspec import Struct

from schemas.benchmark import BenchmarkResult
from schemas.executor import AttemptOutcome, Failure, FailureKind, Window

LOG_TAIL_LINES: Final = 20
LOG_LINE_CHARACTERS: Final = 500
_OUT_OF_MEMORY: Final = re.compile(
    r"out of memory|outofmemoryerror|cuda_error_out_of_memory|cannot allocate memory"
    r"|failed to allocate|std::bad_alloc|\bMemoryError\b",
    re.IGNORECASE,
)
_PORT_TAKEN: Final = re.compile(
    r"address already in use|errno 98\b|EADDRINUSE|couldn't bind", re.IGNORECASE
)


class Verdict(Struct, frozen=True, kw_only=True):
    """An attempt's outcome; `benchmark` if and only if it succeeded."""

    outcome: AttemptOutcome
    failure: Failure | None = None
    benchmark: BenchmarkResult | None = None

    @property
    def windows(self) -> tuple[Window, ...]:
        """The measured runs, in order."""
        levels = self.benchmark.levels if self.benchmark is not None else ()
        return tuple(
            Window(started_at=level.started_at, finished_at=level.finished_at) for level in levels
        )


class AttemptFailed(Exception):
    """The attempt is over, for the reason in `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def failed(failure: Failure) -> Verdict:
    return Verdict(outcome=AttemptOutcome.FAILED, failure=failure)


def cancelled(reason: str) -> Verdict:
    message = f"cancelled: {reason}" if reason else "cancelled"
    return Verdict(
        outcome=AttemptOutcome.CANCELLED,
        failure=Failure(kind=FailureKind.CANCELLED, message=message),
    )


def lease_lost(message: str) -> Verdict:
    return Verdict(
        outcome=AttemptOutcome.INTERRUPTED,
        failure=Failure(kind=FailureKind.LEASE_LOST, message=message),
    )


def executor_restarted(message: str) -> Verdict:
    return Verdict(
        outcome=AttemptOutcome.INTERRUPTED,
        failure=Failure(kind=FailureKind.EXECUTOR_RESTARTED, message=message),
    )


def timed_out(timeout_seconds: float) -> Verdict:
    return failed(
        Failure(
            kind=FailureKind.TIMEOUT,
            message=f"expected the attempt to end within {timeout_seconds:g} s",
        )
    )


def judge(benchmark: BenchmarkResult, *, min_success_rate: float) -> Verdict:
    """A finished benchmark succeeded if enough of its requests did, and at least one."""
    metrics = benchmark.metrics
    if metrics.total_completed_requests and metrics.success_rate >= min_success_rate:
        return Verdict(outcome=AttemptOutcome.SUCCEEDED, benchmark=benchmark)
    codes: dict[str, int] = {}
    for level in benchmark.levels:
        for code, count in level.error_codes_frequency.items():
            codes[code] = codes.get(code, 0) + count
    causes = ", ".join(f"{count} x {code}" for code, count in sorted(codes.items())) or "no request"
    return failed(
        Failure(
            kind=FailureKind.BENCHMARK_FAILED,
            message=(
                f"expected at least {min_success_rate:.0%} of the requests to succeed, "
                f"{metrics.total_completed_requests} of {metrics.total_requests} did ({causes})"
            ),
        )
    )


def engine_exit(engine: str, exit_code: int, when: str, log_text: str) -> Failure:
    """An engine that ended by itself. A negative exit code is the signal that ended it."""
    how = f"exit code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"
    out_of_memory = _OUT_OF_MEMORY.search(log_text) is not None
    return Failure(
        kind=FailureKind.OUT_OF_MEMORY if out_of_memory else FailureKind.ENGINE_EXITED,
        message=f"{engine} ended {when} with {how}",
        exit_code=exit_code,
        log_tail=log_tail(log_text),
    )


def log_tail(log_text: str) -> tuple[str, ...]:
    """The last lines, none of them endless."""
    return tuple(line[:LOG_LINE_CHARACTERS] for line in log_text.splitlines()[-LOG_TAIL_LINES:])


def is_port_taken(log_text: str) -> bool:
    """Whether an engine ended because another process listens on its port."""
    return _PORT_TAKEN.search(log_text) is not None
