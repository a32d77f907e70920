"""How an attempt ended, and why an engine or a benchmark counts as failed."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.executor.attempts import (
    AttemptOutcome,
    AttemptPhase,
    EngineUse,
    Failure,
    FailureKind,
    Window,
)
from schemas.task.benchmark import BenchmarkResult
from shared.benchmarks.levels.level_text import describe_failed_levels, percent_text
from shared.errors import StewardError
from shared.failures import RULES, KnownFailure, findings

LOG_TAIL_LINES: Final = 20
LOG_LINE_CHARACTERS: Final = 500

# What only a container engine can report; in an engine's log such words are about something else.
_NEVER_AN_ENGINES: Final = frozenset(
    {FailureKind.RUNTIME_UNAVAILABLE, FailureKind.IMAGE_PULL_FAILED, FailureKind.INTERNAL}
)
_SIGNALS: Final = {
    4: "the processor lacks an instruction that the engine is built with (SIGILL): take a build "
    "for it, `lscpu` lists what it has",
    6: "the engine gave itself up (SIGABRT): the last lines of its log say why",
    7: "a file or shared memory that the engine had mapped was cut off (SIGBUS): in a container "
    "/dev/shm is often too small, give it more with `--shm-size`; else check the model's files",
    9: "something killed the engine (SIGKILL), often the kernel for want of memory: "
    "`sudo dmesg | grep -i 'killed process'` tells",
    11: "the engine crashed (SIGSEGV), which is its own fault or its driver's: try another version "
    "or image",
    15: "the engine was sent SIGTERM, not by GPU Steward",
}
_EXIT_CODES: Final = {
    126: FailureKind.ENGINE_MISSING,  # by custom of shells: it may not be executed
    127: FailureKind.ENGINE_MISSING,  # and this: there is no such program
}


class Verdict(Struct, frozen=True, kw_only=True):
    """An attempt's outcome; `benchmark` if and only if it succeeded."""

    outcome: AttemptOutcome
    failure: Failure | None = None
    benchmark: BenchmarkResult | None = None
    executor_stopped: bool = False
    engine_use: EngineUse | None = None

    @property
    def windows(self) -> tuple[Window, ...]:
        """The measured runs, in order."""
        levels = self.benchmark.levels if self.benchmark is not None else ()
        return tuple(
            Window(started_at=level.started_at, finished_at=level.finished_at) for level in levels
        )


class AttemptFailed(StewardError):
    """The attempt is over, for the reason in `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    @classmethod
    def of(cls, kind: FailureKind, message: str, *, log_text: str = "") -> "AttemptFailed":
        """Build the failure with the hint of its kind."""
        return cls(failure(kind, message, log_text=log_text))


def failure_verdict(failure: Failure) -> Verdict:
    return Verdict(outcome=AttemptOutcome.FAILED, failure=failure)


def cancellation_verdict(reason: str) -> Verdict:
    message = f"cancelled: {reason}" if reason else "cancelled"
    return Verdict(
        outcome=AttemptOutcome.CANCELLED, failure=failure(FailureKind.CANCELLED, message)
    )


def lease_lost(message: str) -> Verdict:
    return Verdict(
        outcome=AttemptOutcome.INTERRUPTED, failure=failure(FailureKind.LEASE_LOST, message)
    )


def executor_restarted(message: str) -> Verdict:
    return Verdict(
        outcome=AttemptOutcome.INTERRUPTED, failure=failure(FailureKind.EXECUTOR_RESTARTED, message)
    )


def executor_stopped() -> Verdict:
    return replace(executor_restarted("the executor was stopped"), executor_stopped=True)


def timeout_verdict(timeout_seconds: float) -> Verdict:
    return failure_verdict(
        failure(FailureKind.TIMEOUT, f"expected the attempt to end within {timeout_seconds:g} s")
    )


def failure(
    kind: FailureKind,
    message: str,
    *,
    exit_code: int | None = None,
    log_text: str = "",
    phase: AttemptPhase | None = None,
    hint: str = "",
    is_final: bool = False,
) -> Failure:
    """A failure with its hint: the kind's, unless a more exact one is given."""
    return Failure(
        kind=kind,
        message=message,
        exit_code=exit_code,
        log_tail=log_tail(log_text),
        hint=hint or RULES[kind].hint,
        phase=phase,
        is_final=is_final,
    )


def on_full_disk(engine_failure: Failure, room: str) -> Failure:
    """The failure of an attempt whose disk was full in the end: `room` says how full.

    Programs that cannot write end as if of themselves, and their logs take no word of why.
    """
    if engine_failure.kind not in {FailureKind.ENGINE_EXITED, FailureKind.BENCHMARK_FAILED}:
        return engine_failure
    kind = FailureKind.DISK_FULL
    message = f"{engine_failure.message}; its disk is full: {room}"
    return replace(engine_failure, kind=kind, message=message, hint=RULES[kind].hint)


def engine_refusal(text: str, message: str, *, otherwise: FailureKind) -> AttemptFailed:
    """Return the failure that a container engine's error `text` means, `otherwise` if it is
    unknown.

    `message` says what was tried; the error follows it.
    """
    known_failure = next((finding.failure for finding in findings(text)), None)
    kind = known_failure.kind if known_failure is not None else otherwise
    reason = f"{message}: {text[:LOG_LINE_CHARACTERS]}"
    return AttemptFailed(failure(kind, reason, hint=_hint_of(known_failure)))


def judge(benchmark: BenchmarkResult) -> Verdict:
    """A finished benchmark succeeded if a level of it did; the failed ones count in the ranking."""
    metrics = benchmark.metrics
    if len(metrics.failed_levels) < metrics.total_levels:
        return Verdict(outcome=AttemptOutcome.SUCCEEDED, benchmark=benchmark)
    codes: dict[str, int] = {}
    for level in benchmark.levels:
        for code, count in level.error_codes_frequency.items():
            codes[code] = codes.get(code, 0) + count
    causes = ", ".join(f"{count} x {code}" for code, count in sorted(codes.items())) or "no request"
    return failure_verdict(
        failure(
            FailureKind.BENCHMARK_FAILED,
            f"expected a level with at most {percent_text(metrics.max_error_rate or 0.0)} failed "
            "requests (max_error_rate): "
            f"{describe_failed_levels(metrics.failed_levels)} ({causes})",
        )
    )


def engine_exit(
    engine: str,
    exit_code: int,
    when: str,
    log_text: str,
    *,
    oom_killed: bool = False,
    phase: AttemptPhase | None = None,
) -> Failure:
    """An engine that ended by itself, for the reason that its log shows.

    A negative exit code is the signal that ended it, and so is one above 128 of a container.
    `oom_killed`: the kernel ended it, or a part of it, because its memory limit was reached.
    """
    how = f"exit code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"
    message = f"{engine} ended {when} with {how}"
    known_failure = None if oom_killed else _cause_in(log_text)
    if oom_killed:
        kind, message = FailureKind.OUT_OF_MEMORY, f"{message}: it reached its memory limit"
    elif known_failure is not None:
        kind, message = known_failure.kind, f"{message}: {known_failure.title}"
    else:
        kind = _EXIT_CODES.get(exit_code, FailureKind.ENGINE_EXITED)
    return failure(
        kind,
        message,
        exit_code=exit_code,
        log_text=log_text,
        phase=phase,
        hint=_hint_of(known_failure) or ("" if oom_killed else _signal_hint(exit_code)),
        is_final=known_failure is not None and known_failure.is_final,
    )


def _cause_in(log_text: str) -> KnownFailure | None:
    causes = (finding.failure for finding in findings(log_text))
    return next((cause for cause in causes if cause.kind not in _NEVER_AN_ENGINES), None)


def _hint_of(known_failure: KnownFailure | None) -> str:
    return known_failure.hint if known_failure is not None else ""


def _signal_hint(exit_code: int) -> str:
    return _SIGNALS.get(-exit_code if exit_code < 0 else exit_code - 128, "")


def log_tail(log_text: str) -> tuple[str, ...]:
    """The last lines, none of them endless."""
    return tuple(line[:LOG_LINE_CHARACTERS] for line in log_text.splitlines()[-LOG_TAIL_LINES:])


def is_port_taken(log_text: str) -> bool:
    """Return whether an engine ended because another process listens on its port."""
    return any(finding.failure.kind is FailureKind.PORT_TAKEN for finding in findings(log_text))
