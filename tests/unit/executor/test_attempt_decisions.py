"""The pure decisions about an attempt: admission, lease, verdict."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from schemas.errors import ErrorCode
from schemas.executor.attempts import AttemptOutcome, AttemptPhase, FailureKind
from schemas.task.benchmark import BenchmarkResult, BenchmarkTool, LevelResult
from services.executor.domain.admission import StartHistory, refuse_start
from services.executor.domain.verdict import (
    Verdict,
    cancellation_verdict,
    engine_exit,
    engine_refusal,
    executor_restarted,
    executor_stopped,
    failure,
    is_port_taken,
    judge,
    lease_lost,
    log_tail,
    on_full_disk,
    timeout_verdict,
)
from shared.benchmarks.experiment_metrics import aggregate
from shared.benchmarks.metrics import RequestSample, level_result
from shared.failures import RULES
from shared.postgres.commands import OWNER_DOWN
from tests.support.tables import for_each
from tests.support.worlds.executor import make_start


@pytest.mark.parametrize(
    ("remembered", "want"),
    [
        pytest.param(StartHistory(), None, id="a node that remembers nothing"),
        pytest.param(StartHistory(device_epochs={"GPU-0": 7}), None, id="the same epoch"),
        pytest.param(
            StartHistory(device_epochs={"GPU-0": 8}), ErrorCode.STALE_EPOCH, id="newer grant"
        ),
        pytest.param(StartHistory(is_fenced=True), ErrorCode.LEASE_LOST, id="fenced"),
        pytest.param(StartHistory(is_cancelled=True), ErrorCode.CONFLICT, id="cancelled"),
        pytest.param(
            StartHistory(attempt_of_reservation=uuid4()), ErrorCode.CONFLICT, id="reservation spent"
        ),
        pytest.param(
            StartHistory(blocking_attempts=(uuid4(),)), ErrorCode.STILL_RUNNING, id="device in use"
        ),
        pytest.param(StartHistory(unfinished=1), ErrorCode.STILL_RUNNING, id="no slot left"),
    ],
)
def test_start_is_refused_by_node_memory(remembered: StartHistory, want: ErrorCode | None) -> None:
    refusal = refuse_start(make_start(), remembered, engine_slots=1)

    assert (refusal.code if refusal is not None else None) is want
    assert want not in OWNER_DOWN, "it would hold back every cancel and fence of this node"


def make_level(*, completed: int, **errors: int) -> LevelResult:
    sample = RequestSample(ttft=0.5, e2e_latency=2.5, num_input_tokens=100, num_output_tokens=21)
    return level_result(
        scenario="D(100,21)",
        num_concurrency=4,
        started_at=datetime(2026, 1, 2, tzinfo=UTC),
        run_duration=4.0,
        samples=[sample] * completed,
        error_codes=errors,
    )


def make_result(*levels: LevelResult) -> BenchmarkResult:
    return BenchmarkResult(
        tool=BenchmarkTool.BUILTIN,
        tool_version="1",
        simulated=True,
        levels=levels,
        metrics=aggregate(levels),
        elapsed_seconds=1.0,
    )


@pytest.mark.parametrize(
    ("failed_levels", "want"),
    [(0, AttemptOutcome.SUCCEEDED), (1, AttemptOutcome.SUCCEEDED), (2, AttemptOutcome.FAILED)],
)
def test_a_benchmark_succeeds_if_it_served_a_load(failed_levels: int, want: AttemptOutcome) -> None:
    served, failed = make_level(completed=20), make_level(completed=1, timeout=16)
    result = make_result(*[failed] * failed_levels, *[served] * (2 - failed_levels))

    verdict = judge(result)

    assert verdict.outcome is want
    assert (verdict.benchmark is not None) == (want is AttemptOutcome.SUCCEEDED)
    assert (verdict.failure is None) == (want is AttemptOutcome.SUCCEEDED)


def test_benchmark_over_error_share_is_refused() -> None:
    verdict = judge(make_result(make_level(completed=1, timeout=14, **{"503": 2})))

    assert verdict.failure is not None
    assert verdict.failure.message == (
        "expected a level with at most 1 % failed requests (max_error_rate): "
        "D(100,21) at concurrency 4 served 1 of 17 (2 x 503, 14 x timeout)"
    )


def test_benchmark_without_requests_fails() -> None:
    assert judge(make_result()).outcome is AttemptOutcome.FAILED
    assert judge(make_result(make_level(completed=0))).outcome is AttemptOutcome.FAILED


@pytest.mark.parametrize(
    ("exit_code", "text", "want"),
    [
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried", FailureKind.GPU_OUT_OF_MEMORY),
        (-9, "ggml: failed to allocate buffer", FailureKind.OUT_OF_MEMORY),
        (134, "what():  std::bad_alloc", FailureKind.OUT_OF_MEMORY),
        (1, "CUDA error: an illegal memory access was encountered", FailureKind.CUDA_ERROR),
        (1, "OSError: [Errno 98] Address already in use", FailureKind.PORT_TAKEN),
        (1, "OSError: [Errno 28] No space left on device", FailureKind.DISK_FULL),
        (1, "Repository Not Found for url: https://x/y", FailureKind.MODEL_MISSING),
        (2, "vllm: error: unrecognized arguments: --x", FailureKind.BAD_PARAMETER),
        (127, "", FailureKind.ENGINE_MISSING),
        (0, "", FailureKind.ENGINE_EXITED),
        (-9, "", FailureKind.ENGINE_EXITED),
        (1, "ValueError: unknown model", FailureKind.ENGINE_EXITED),
        (1, "net/http: TLS handshake timeout", FailureKind.ENGINE_EXITED),
    ],
)
def test_engine_exit_is_explained_by_its_log(exit_code: int, text: str, want: FailureKind) -> None:
    failure = engine_exit("vllm", exit_code, "before it was ready", text)

    how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    assert failure.kind is want
    assert failure.message.startswith(f"vllm ended before it was ready with {how}")
    assert failure.log_tail == tuple(text.splitlines())
    assert failure.exit_code == exit_code
    assert failure.hint


def test_container_at_memory_limit_is_out_of_memory() -> None:
    failure = engine_exit(
        "vllm",
        137,
        "during the benchmark",
        "CUDA error: unspecified launch failure",
        oom_killed=True,
        phase=AttemptPhase.MEASURING,
    )

    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert failure.message.endswith("with exit code 137: it reached its memory limit")
    assert failure.hint == RULES[FailureKind.OUT_OF_MEMORY].hint
    assert failure.phase is AttemptPhase.MEASURING


@pytest.mark.parametrize("exit_code", [-7, 135])
def test_bus_error_hints_at_shared_memory(exit_code: int) -> None:
    assert "/dev/shm" in engine_exit("vllm", exit_code, "while loading", "").hint  # noqa: S108


def test_container_engine_error_has_matching_kind() -> None:
    known = engine_refusal(
        'could not select device driver "" with capabilities: [[gpu]]',
        "the container could not be started",
        otherwise=FailureKind.RUNTIME_UNAVAILABLE,
    ).failure
    unknown = engine_refusal(
        "something new", "the container could not be made", otherwise=FailureKind.INTERNAL
    ).failure

    assert known.kind is FailureKind.GPU_UNAVAILABLE
    assert known.message.startswith("the container could not be started: could not select")
    assert "nvidia-ctk" in known.hint
    assert (unknown.kind, unknown.hint) == (
        FailureKind.INTERNAL,
        RULES[FailureKind.INTERNAL].hint,
    )


@for_each("kind", FailureKind)
def test_every_failure_leaves_with_its_hint(kind: FailureKind) -> None:
    assert failure(kind, "it failed").hint == RULES[kind].hint


@pytest.mark.parametrize(
    "verdict",
    [
        cancellation_verdict("enough"),
        lease_lost("too late"),
        executor_restarted("it ended"),
        timeout_verdict(5.0),
        judge(make_result()),
    ],
    ids=lambda verdict: verdict.failure.kind.value,
)
def test_every_failed_verdict_has_a_hint(verdict: Verdict) -> None:
    assert verdict.failure is not None
    assert verdict.failure.hint


def test_stopped_executor_differs_from_other_ends() -> None:
    assert executor_stopped().executor_stopped
    assert not executor_restarted("it is another one").executor_stopped
    assert executor_stopped().outcome is executor_restarted("").outcome


def test_log_tail_is_short_for_any_log() -> None:
    tail = log_tail("\n".join(["x" * 10_000] * 500))

    assert len(tail) == 20
    assert max(map(len, tail)) == 500


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("OSError: [Errno 98] Address already in use", True),
        ("error: bind: address already in use", True),
        ("CUDA error", False),
    ],
)
def test_a_taken_port_is_recognized(text: str, want: bool) -> None:
    assert is_port_taken(text) is want


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FailureKind.ENGINE_EXITED, FailureKind.DISK_FULL),
        (FailureKind.BENCHMARK_FAILED, FailureKind.DISK_FULL),
        (FailureKind.GPU_OUT_OF_MEMORY, FailureKind.GPU_OUT_OF_MEMORY),
    ],
)
def test_engine_exit_on_full_disk_is_disk_full(kind: FailureKind, expected: FailureKind) -> None:
    found = on_full_disk(failure(kind, "it ended", log_text="last words"), "0 MB of 9 MB are free")

    assert found.kind is expected
    assert found.hint == failure(expected, "").hint
    assert found.log_tail == ("last words",)
    assert ("0 MB of 9 MB" in found.message) is (expected is FailureKind.DISK_FULL)
