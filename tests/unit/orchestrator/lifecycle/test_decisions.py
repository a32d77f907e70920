"""What follows for an experiment from each fact, in every state that the fact can find it in."""

import math
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from schemas.base import tag_of
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptOutcome,
    AttemptPhase,
    AttemptPhaseChanged,
    AttemptStarted,
    CancelExperiment,
    Failure,
    FailureKind,
    StartExperiment,
)
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import GpuModel, GpuRequest
from schemas.orchestrator.experiments import (
    ExperimentRunning,
    ExperimentSucceeded,
    ExperimentWaiting,
)
from schemas.orchestrator.experiments import ExperimentState as State
from schemas.results.measurements import GpuMonitoring
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RequestReservation,
    ReservationState,
)
from schemas.task.benchmark import BenchmarkMetrics, BenchmarkResult, BenchmarkTool
from services.orchestrator.domain.lifecycle import running, waiting
from services.orchestrator.domain.lifecycle.same_model import model_of
from services.orchestrator.domain.lifecycle.waiting import ReservationEnd
from services.orchestrator.domain.records import Attempt, Decision
from shared.benchmarks.metrics import RequestSample, level_result
from shared.benchmarks.verdicts.constraints import excess_of
from tests.support.worlds.orchestrator_records import (
    ATTEMPT_ID,
    DEVICE,
    EXPERIMENT_ID,
    NOW,
    RESERVATION_ID,
    TASK_ID,
    make_attempt,
    make_experiment,
    make_file,
    make_grant,
    make_granted,
    make_task,
)

ABOUT = {
    "message_id": ATTEMPT_ID,
    "occurred_at": NOW,
    "experiment_id": EXPERIMENT_ID,
    "attempt_id": ATTEMPT_ID,
    "attempt_number": 1,
    "task_id": TASK_ID,
    "executor_id": "n1",
    "reservation_id": RESERVATION_ID,
    "epoch": 7,
}


def told(decision: Decision) -> list[str]:
    """Its events, whose revisions go on from that of `make_experiment` without a gap."""
    revisions = [event.revision for event in decision.events]
    assert revisions == list(range(2, decision.experiment.revision + 1))
    return [tag_of(type(event)).partition("experiment_")[2] for event in decision.events]


def sent(decision: Decision) -> list[type]:
    return [type(command) for command in decision.commands]


def finished(outcome: AttemptOutcome, revision: int = 9) -> AttemptFinished:
    experiment = make_experiment(State.RUNNING)
    return msgspec.convert(
        {
            **ABOUT,
            "type": "executor.attempt_finished",
            "revision": revision,
            "outcome": outcome.value,
            "namespace": "default",
            "devices": (msgspec.to_builtins(DEVICE),),
            "engine": msgspec.to_builtins(experiment.engine),
            "started_at": NOW,
            "finished_at": NOW,
            "image_digest": "vllm@sha256:aa",
        },
        AttemptFinished,
    )


def end(state: ReservationState, *, was_granted: bool = False, revision: int = 3) -> ReservationEnd:
    reason = Reason(code=ReasonCode.NO_GPUS, message="there are none")
    return ReservationEnd(
        revision=revision, state=state, was_granted=was_granted, reasons=(reason,)
    )


def test_pending_experiment_requests_gpus() -> None:
    failed = {FailureKind.ENGINE_EXITED: 2}
    experiment = make_experiment(
        State.PENDING, interrupted_attempts=1, failed_attempts=failed, ordinal=3, task_name="tuning"
    )
    request = GpuRequest(gpus=2)

    decision = waiting.request_gpus(
        experiment, request, NOW, attempt_id=ATTEMPT_ID, reservation_id=RESERVATION_ID
    )

    assert decision.attempt == make_attempt(attempt_number=4)
    assert not make_attempt().is_accepted, "or nobody would renew its lease"
    assert decision.experiment == replace(
        experiment, state=State.WAITING, revision=2, request=request
    )
    [event], [command] = decision.events, decision.commands
    assert isinstance(event, ExperimentWaiting)
    assert (event.revision, event.attempt_number) == (2, 4)
    assert isinstance(command, RequestReservation)
    assert command.request == request
    assert command.holder == f"experiment/{EXPERIMENT_ID}/tuning#3"


def test_repeated_start_keeps_its_tool() -> None:
    attempt = make_granted(benchmark_tool=BenchmarkTool.GENAI_BENCH)
    task = make_task(make_file(benchmark={"tool": "auto"}))

    [start] = waiting.start_of(task, make_experiment(State.STARTING), attempt)

    assert start.benchmark.tool is BenchmarkTool.GENAI_BENCH


@pytest.mark.parametrize("unknown", ["executor_id", "epoch", "lease_ttl_seconds", "benchmark_tool"])
def test_start_needs_a_complete_grant(unknown: str) -> None:
    attempt = make_granted(**{unknown: None})

    assert waiting.start_of(make_task(), make_experiment(State.STARTING), attempt) == ()


def test_attempt_uses_the_tool_of_its_task() -> None:
    task = make_task(benchmark_tool=BenchmarkTool.GENAI_BENCH)

    decision = waiting.on_grant(
        task, make_experiment(State.WAITING), make_attempt(), make_grant(), NOW
    )

    assert decision is not None
    assert decision.attempt is not None
    assert decision.attempt.benchmark_tool is BenchmarkTool.GENAI_BENCH


def test_a_grant_starts_a_waiting_experiment() -> None:
    decision = waiting.on_grant(
        make_task(), make_experiment(State.WAITING), make_attempt(), make_grant(), NOW
    )

    assert decision is not None
    assert decision.experiment.state is State.STARTING
    assert (told(decision), sent(decision)) == (["starting"], [StartExperiment])
    assert decision.attempt == make_granted()


def test_first_grant_binds_the_gpu_model() -> None:
    mixed = make_task(make_file(gpus={"mixed_models": True}))
    first = waiting.on_grant(
        make_task(), make_experiment(State.WAITING), make_attempt(), make_grant(), NOW
    )
    any_model = waiting.on_grant(
        mixed, make_experiment(State.WAITING), make_attempt(), make_grant(), NOW
    )

    assert first is not None
    assert first.task is not None
    assert first.task.gpu_model == GpuModel(name="H100", memory_total_mb=80_000)
    assert any_model is not None
    assert any_model.task is None


@pytest.mark.parametrize(
    ("model", "is_started"),
    [
        pytest.param(GpuModel(name="H100", memory_total_mb=81_000), True, id="a driver's MB"),
        pytest.param(GpuModel(name="H100"), True, id="size unknown"),
        pytest.param(GpuModel(name="H100", memory_total_mb=96_000), False, id="other size"),
        pytest.param(GpuModel(name="H100 NVL", memory_total_mb=80_000), False, id="other model"),
    ],
)
def test_grant_of_another_model_is_given_back(model: GpuModel, is_started: bool) -> None:
    task = make_task(gpu_model=model)

    found = waiting.on_grant(
        task, make_experiment(State.WAITING), make_attempt(), make_grant(), NOW
    )

    assert found is not None
    assert found.task is None
    if is_started:
        assert sent(found) == [StartExperiment]
    else:
        assert sent(found) == [ReleaseReservation]
        assert found.experiment.state is State.PENDING
        assert found.attempt is not None
        assert found.attempt.closed_at == NOW


def test_a_mig_instance_stands_for_its_gpus_model() -> None:
    name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    instance = replace(DEVICE, name=name, mig_profile="1g.10gb", memory_total_mb=9_728)

    assert model_of(make_task(), (instance,), None) == GpuModel(name="NVIDIA H100 80GB HBM3")


def test_start_has_power_limit_and_clock() -> None:
    experiment = make_experiment(State.WAITING, power_limit_w=350.0, sm_clock_mhz=1200)

    start = waiting.start_of(make_task(), experiment, make_granted())

    assert (start[0].power_limit_w, start[0].sm_clock_mhz) == (350.0, 1200)


def test_the_same_grant_again_changes_nothing() -> None:
    experiment, attempt = make_experiment(State.STARTING), make_granted()

    assert waiting.on_grant(make_task(), experiment, attempt, make_grant(), NOW) is None


@pytest.mark.parametrize("state", [State.CANCELLED, State.PENDING, State.WAITING])
def test_grant_of_a_withdrawn_request_is_given_back(state: State) -> None:
    decision = waiting.on_grant(
        make_task(), make_experiment(state), make_attempt(closed_at=NOW), make_grant(), NOW
    )

    assert decision is not None
    assert decision.experiment.state is state
    [release] = decision.commands
    assert isinstance(release, ReleaseReservation)
    assert (release.epoch, release.stopped) == (7, True)


@pytest.mark.parametrize(
    ("state", "was_granted", "task_held_gpus", "want"),
    [
        pytest.param(ReservationState.REJECTED, False, False, State.FAILED, id="can never fit"),
        pytest.param(ReservationState.TIMED_OUT, False, False, State.FAILED, id="waited in vain"),
        pytest.param(ReservationState.TIMED_OUT, False, True, State.PENDING, id="behind its own"),
        pytest.param(ReservationState.REJECTED, False, True, State.FAILED, id="never fits still"),
        pytest.param(
            ReservationState.CANCELLED, False, False, State.FAILED, id="withdrawn by hand"
        ),
        pytest.param(ReservationState.EXPIRED, True, False, State.PENDING, id="gone unseen"),
        pytest.param(ReservationState.CANCELLED, True, False, State.PENDING, id="drained unseen"),
    ],
)
def test_reservation_may_end_before_a_start(
    state: ReservationState, was_granted: bool, task_held_gpus: bool, want: State
) -> None:
    decision = waiting.on_reservation_end(
        make_experiment(State.WAITING),
        make_attempt(),
        end(state, was_granted=was_granted),
        NOW,
        task_held_gpus=task_held_gpus,
    )

    assert decision is not None
    assert decision.experiment.state is want
    assert decision.attempt is not None
    assert decision.attempt.closed_at == NOW
    if want is State.FAILED:
        assert told(decision) == ["failed"]
        assert "there are none" in decision.experiment.reason


def test_impossible_request_on_128_gpus_explains_itself() -> None:
    reasons = tuple(
        Reason(
            code=ReasonCode.MODEL_MISMATCH,
            message=f"GPU {n % 8} on gpu-{n // 8:02} is a NVIDIA L40S, not any of A100",
            node_id=f"gpu-{n // 8:02}",
            device_uuid=f"GPU-{n}",
        )
        for n in range(128)
    )

    decision = waiting.on_reservation_end(
        make_experiment(State.WAITING),
        make_attempt(),
        replace(end(ReservationState.REJECTED), reasons=reasons),
        NOW,
        task_held_gpus=False,
    )

    assert decision is not None
    assert decision.experiment.reason == (
        "the GPUs asked for can never be granted: 128 GPUs of another model"
    )


def test_repeated_reservation_end_changes_nothing() -> None:
    attempt = make_attempt(reservation_revision=3)
    timed_out = end(ReservationState.TIMED_OUT, revision=3)

    decision = waiting.on_reservation_end(
        make_experiment(State.WAITING), attempt, timed_out, NOW, task_held_gpus=False
    )

    assert decision is None


def test_start_states_cpu_and_memory_limits() -> None:
    experiment = make_experiment(State.WAITING)
    request = replace(experiment.request, cpu_count=2.5, host_memory_mb=64_000)

    decision = waiting.on_grant(
        make_task(), replace(experiment, request=request), make_attempt(), make_grant(), NOW
    )

    assert decision is not None
    [start] = decision.commands
    assert isinstance(start, StartExperiment)
    assert (start.cpu_count, start.host_memory_mb) == (2.5, 64_000)


def test_gang_starts_on_the_first_devices_node() -> None:
    devices = (replace(DEVICE, node_id="n2"), DEVICE, replace(DEVICE, node_id="n3"))

    decision = waiting.on_grant(
        make_task(),
        make_experiment(State.WAITING),
        make_attempt(),
        replace(make_grant(), devices=devices),
        NOW,
    )

    assert decision is not None
    [start] = decision.commands
    assert isinstance(start, StartExperiment)
    assert (start.executor_id, start.devices) == ("n2", devices)
    assert decision.attempt is not None
    assert decision.attempt.node_ids == ("n2", "n1", "n3")
    assert waiting.start_of(make_task(), decision.experiment, decision.attempt) == (start,)


@pytest.mark.parametrize(
    ("state", "asked", "want"),
    [
        pytest.param(ReservationState.REJECTED, ("n2",), State.PENDING, id="never fits elsewhere"),
        pytest.param(ReservationState.TIMED_OUT, ("n2",), State.PENDING, id="in vain elsewhere"),
        pytest.param(ReservationState.CANCELLED, ("n2",), State.FAILED, id="withdrawn by hand"),
        pytest.param(ReservationState.REJECTED, ("n1", "n2"), State.FAILED, id="fits nowhere"),
    ],
)
def test_attempt_without_other_places_returns(
    state: ReservationState, asked: tuple[str, ...], want: State
) -> None:
    experiment = make_experiment(
        State.WAITING, avoided_node_ids=("n1",), request=GpuRequest(node_ids=asked)
    )

    decision = waiting.on_reservation_end(
        experiment, make_attempt(), end(state), NOW, task_held_gpus=False
    )

    assert decision is not None
    assert decision.experiment.state is want
    if want is State.PENDING:
        assert decision.experiment.avoided_node_ids == ()
        assert set(decision.experiment.request.node_ids) == {"n1", "n2"}


def test_event_of_another_node_changes_nothing() -> None:
    event = replace(finished(AttemptOutcome.SUCCEEDED), executor_id="n2")

    assert (
        running.on_attempt_event(
            make_task(), make_experiment(State.RUNNING), make_granted(), event, NOW
        )
        is None
    )


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
@pytest.mark.parametrize("how", [ReservationState.EXPIRED, ReservationState.LOST])
def test_reservation_end_after_start_ends_no_attempt(state: State, how: ReservationState) -> None:
    decision = waiting.on_reservation_end(
        make_experiment(state),
        make_granted(),
        end(how, was_granted=True),
        NOW,
        task_held_gpus=False,
    )

    assert decision is not None
    assert decision.experiment == make_experiment(state)
    assert decision.attempt == make_granted(reservation_revision=3, reservation_ended=True)
    assert (decision.events, decision.commands) == ((), ())


def test_withdrawn_experiment_is_pending() -> None:
    decision = waiting.withdraw(make_experiment(State.WAITING), make_attempt(), "paused", NOW)

    assert decision.experiment.state is State.PENDING
    assert sent(decision) == [CancelReservation]


def test_an_accepted_start_hands_the_lease_over() -> None:
    decision = running.on_start_answered(
        make_task(),
        make_experiment(State.STARTING),
        make_granted(),
        Accepted(command_id=ATTEMPT_ID),
        NOW,
    )

    assert decision == Decision(
        experiment=make_experiment(State.STARTING),
        attempt=make_granted(is_accepted=True, deadline_at=NOW + timedelta(seconds=600)),
    )


@pytest.mark.parametrize(
    ("code", "cancel_requested", "want", "outcome"),
    [
        (ErrorCode.LEASE_LOST, False, State.PENDING, AttemptOutcome.INTERRUPTED),
        (ErrorCode.STALE_EPOCH, False, State.PENDING, AttemptOutcome.INTERRUPTED),
        (ErrorCode.LEASE_LOST, True, State.CANCELLED, AttemptOutcome.INTERRUPTED),
        (ErrorCode.CONFLICT, True, State.CANCELLED, AttemptOutcome.CANCELLED),
        (ErrorCode.CONFLICT, False, State.FAILED, AttemptOutcome.FAILED),
        (ErrorCode.BAD_REQUEST, False, State.FAILED, AttemptOutcome.FAILED),
        (ErrorCode.UNSUPPORTED, False, State.FAILED, AttemptOutcome.FAILED),
    ],
)
def test_refused_start_ends_attempt_and_releases(
    code: ErrorCode, cancel_requested: bool, want: State, outcome: AttemptOutcome
) -> None:
    decision = running.on_start_answered(
        make_task(cancel_requested=cancel_requested),
        make_experiment(State.STARTING),
        make_granted(),
        Refused(code=code, message="no"),
        NOW,
    )

    assert decision is not None
    assert decision.experiment.state is want
    assert decision.attempt is not None
    assert decision.attempt.outcome is outcome
    assert sent(decision) == [ReleaseReservation]


def test_answer_for_a_closed_attempt_is_ignored() -> None:
    closed = make_granted(closed_at=NOW, outcome=AttemptOutcome.SUCCEEDED)

    for reply in (
        Accepted(command_id=ATTEMPT_ID),
        Refused(code=ErrorCode.CONFLICT, message="no"),
    ):
        assert (
            running.on_start_answered(
                make_task(), make_experiment(State.RUNNING), closed, reply, NOW
            )
            is None
        )


def test_start_repeated_by_another_release_runs_on() -> None:
    reused = Refused(code=ErrorCode.COMMAND_ID_REUSED, message="another body")

    decision = running.on_start_answered(
        make_task(), make_experiment(State.RUNNING), make_granted(is_accepted=True), reused, NOW
    )

    assert decision is None


def test_other_refusal_of_a_running_attempt_ends_it() -> None:
    gone = Refused(code=ErrorCode.CONFLICT, message="an attempt of another epoch runs")

    decision = running.on_start_answered(
        make_task(), make_experiment(State.RUNNING), make_granted(is_accepted=True), gone, NOW
    )

    assert decision is not None
    assert decision.attempt is not None
    assert decision.attempt.closed_at == NOW


@pytest.mark.parametrize(
    ("cancel_requested", "is_accepted", "want"),
    [
        (False, True, [StartExperiment]),
        (True, True, [CancelExperiment, StartExperiment]),
        (False, False, None),
    ],
)
def test_missing_attempt_is_asked_for_by_its_start(
    cancel_requested: bool, is_accepted: bool, want: list[type] | None
) -> None:
    decision = running.on_attempt_missing(
        make_task(cancel_requested=cancel_requested),
        make_experiment(State.RUNNING),
        make_granted(is_accepted=is_accepted, lease_ttl_seconds=30.0),
    )

    assert (sent(decision) if decision is not None else None) == want


def test_early_phase_shows_that_the_attempt_runs() -> None:
    event = AttemptPhaseChanged(**ABOUT, revision=2, phase=AttemptPhase.LOADING)  # type: ignore[arg-type]  # a mapping of many types

    decision = running.on_attempt_event(
        make_task(), make_experiment(State.STARTING), make_granted(), event, NOW
    )

    assert decision is not None
    assert decision.experiment.state is State.RUNNING
    assert told(decision) == ["running"]
    [begun] = decision.events
    assert isinstance(begun, ExperimentRunning)
    assert (begun.executor_id, begun.attempt_id) == ("n1", ATTEMPT_ID)
    assert decision.attempt is not None
    assert decision.attempt.phase == "loading"


@pytest.mark.parametrize("known", [pytest.param(1, id="the same"), pytest.param(2, id="a newer")])
def test_older_event_of_an_attempt_changes_nothing(known: int) -> None:
    event = AttemptStarted(**ABOUT, revision=1, devices=(DEVICE,))  # type: ignore[arg-type]  # as above
    attempt = make_granted(attempt_revision=known)

    assert (
        running.on_attempt_event(make_task(), make_experiment(State.RUNNING), attempt, event, NOW)
        is None
    )


def test_first_event_counts_whatever_its_revision() -> None:
    event = AttemptStarted(**ABOUT, revision=0, devices=(DEVICE,))  # type: ignore[arg-type]  # as above

    decision = running.on_attempt_event(
        make_task(), make_experiment(State.STARTING), make_granted(), event, NOW
    )

    assert decision is not None
    assert decision.attempt is not None
    assert decision.attempt.attempt_revision == 0


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
@pytest.mark.parametrize(
    ("outcome", "cancel_requested", "want", "events"),
    [
        (AttemptOutcome.SUCCEEDED, False, State.RUNNING, []),
        (AttemptOutcome.SUCCEEDED, True, State.RUNNING, []),
        (AttemptOutcome.FAILED, False, State.FAILED, ["failed"]),
        (AttemptOutcome.FAILED, True, State.FAILED, ["failed"]),
        (AttemptOutcome.CANCELLED, True, State.CANCELLED, ["cancelled"]),
        (AttemptOutcome.CANCELLED, False, State.CANCELLED, ["cancelled"]),
        (AttemptOutcome.INTERRUPTED, False, State.PENDING, ["retrying"]),
        (AttemptOutcome.INTERRUPTED, True, State.CANCELLED, ["cancelled"]),
    ],
)
def test_each_outcome_of_an_attempt(
    state: State, outcome: AttemptOutcome, cancel_requested: bool, want: State, events: list[str]
) -> None:
    decision = running.on_attempt_event(
        make_task(cancel_requested=cancel_requested),
        make_experiment(state),
        make_granted(),
        finished(outcome),
        NOW,
    )

    assert decision is not None
    assert decision.experiment.state is want
    assert told(decision) == [*(["running"] if state is State.STARTING else []), *events]
    assert decision.attempt is not None
    assert (decision.attempt.outcome, decision.attempt.closed_at) == (outcome, NOW)
    assert decision.attempt.image_digest == "vllm@sha256:aa"
    revisions = [event.revision for event in decision.events]
    assert revisions == list(range(2, 2 + len(revisions)))


def test_last_allowed_interruption_fails_experiment() -> None:
    task = make_task(make_file(optimization={"max_attempts": 3}))
    experiment = make_experiment(State.RUNNING, interrupted_attempts=2)

    decision = running.on_attempt_event(
        task, experiment, make_granted(), finished(AttemptOutcome.INTERRUPTED), NOW
    )

    assert decision is not None
    assert decision.experiment.state is State.FAILED
    assert decision.experiment.interrupted_attempts == 3


@pytest.mark.parametrize("outcome", AttemptOutcome)
def test_an_attempt_keeps_its_first_outcome(outcome: AttemptOutcome) -> None:
    closed = make_granted(closed_at=NOW, outcome=AttemptOutcome.INTERRUPTED, attempt_revision=3)

    assert (
        running.on_attempt_event(
            make_task(), make_experiment(State.PENDING), closed, finished(outcome), NOW
        )
        is None
    )


METRICS = BenchmarkMetrics(mean_e2e_latency=0.5)


def test_experiment_succeeds_when_summarized() -> None:
    attempt = make_granted(closed_at=NOW, outcome=AttemptOutcome.SUCCEEDED)

    decision = running.on_summary(
        make_task(), make_experiment(State.RUNNING), attempt, METRICS, NOW
    )

    assert decision is not None
    assert (decision.experiment.state, decision.experiment.objective_score) == (
        State.SUCCEEDED,
        0.5,
    )
    (event,) = decision.events
    assert isinstance(event, ExperimentSucceeded)
    assert (event.metrics, event.objective_score) == (METRICS, 0.5)


def test_early_summary_waits_for_the_end() -> None:
    early = running.on_summary(
        make_task(), make_experiment(State.RUNNING), make_granted(), METRICS, NOW
    )

    assert early is not None
    assert early.events == ()
    decision = running.on_attempt_event(
        make_task(), early.experiment, make_granted(), finished(AttemptOutcome.SUCCEEDED), NOW
    )
    assert decision is not None
    assert (decision.experiment.state, decision.experiment.metrics) == (State.SUCCEEDED, METRICS)


TTFT_SECONDS = 0.4


def measured() -> AttemptFinished:
    """One request to the end of whose first token it took TTFT_SECONDS."""
    sample = RequestSample(
        ttft=TTFT_SECONDS, e2e_latency=2.0, num_input_tokens=1, num_output_tokens=2
    )
    level = level_result(
        scenario="D(1,2)",
        num_concurrency=1,
        started_at=NOW,
        run_duration=2.0,
        samples=[sample],
        error_codes={},
    )
    result = BenchmarkResult(
        tool=BenchmarkTool.BUILTIN,
        tool_version="1",
        simulated=True,
        levels=(level,),
        metrics=METRICS,
        elapsed_seconds=2.0,
    )
    return replace(finished(AttemptOutcome.SUCCEEDED), benchmark=result)


@pytest.mark.parametrize("summary_first", [True, False])
def test_end_is_judged_by_the_tasks_objectives(summary_first: bool) -> None:
    """At exactly twice the threshold: 0.5 s x (1 + exp(1 / 1))."""
    slo = {"ttft": {"threshold": TTFT_SECONDS / 2}, "steepness": 1.0}
    asked = {"constraints": "ttft:p99<=320ms"}
    task = make_task(make_file(slo=slo, optimization=asked))
    experiment, attempt = make_experiment(State.RUNNING), make_granted()

    if summary_first:
        early = running.on_summary(task, experiment, attempt, METRICS, NOW)
        assert early is not None
        decision = running.on_attempt_event(task, early.experiment, attempt, measured(), NOW)
    else:
        end = running.on_attempt_event(task, experiment, attempt, measured(), NOW)
        assert end is not None
        assert end.attempt is not None
        decision = running.on_summary(task, end.experiment, end.attempt, METRICS, NOW)

    assert decision is not None
    found = decision.experiment
    assert found.state is State.SUCCEEDED
    assert found.objective_score == pytest.approx(0.5 * (1 + math.e))
    assert excess_of(found.slo) == pytest.approx(0.25)


@pytest.mark.parametrize("summary_first", [True, False])
def test_goodput_joules_and_cost_can_be_objectives(summary_first: bool) -> None:
    """One request in 2 s, in time, on two GPUs."""
    metrics = replace(METRICS, max_total_throughput=100.0, max_total_throughput_per_gpu=50.0)
    monitoring = GpuMonitoring(
        monitoring_duration_seconds=1.0,
        sample_count=1,
        gpu_stats={},
        coverage_percent=100.0,
        energy_wh=1.0,
        phase="measuring",
        simulated=True,
        tokens_per_joule=7.0,
        cost_per_million_tokens=1.5,
    )
    for objective, want in (
        ("maximize_goodput", 0.25),
        ("maximize_tokens_per_joule", 7.0),
        ("minimize_cost", 1.5),
    ):
        asked = {"objective": objective, "constraints": "ttft:p99<=1s"}
        task, attempt = make_task(make_file(optimization=asked)), make_granted()
        experiment = make_experiment(State.RUNNING)

        if summary_first:
            early = running.on_summary(task, experiment, attempt, metrics, NOW, None, monitoring)
            assert early is not None
            decision = running.on_attempt_event(task, early.experiment, attempt, measured(), NOW)
        else:
            end = running.on_attempt_event(task, experiment, attempt, measured(), NOW)
            assert end is not None
            assert end.attempt is not None
            decision = running.on_summary(
                task, end.experiment, end.attempt, metrics, NOW, None, monitoring
            )

        assert decision is not None
        assert decision.experiment.objective_score == pytest.approx(want)


def test_missed_hard_bound_fails_the_experiment() -> None:
    slo = {"ttft": {"threshold": TTFT_SECONDS / 2, "hard_fail": True, "fail_ratio": 0.5}}
    task = make_task(make_file(slo=slo))
    early = running.on_summary(task, make_experiment(State.RUNNING), make_granted(), METRICS, NOW)
    assert early is not None

    decision = running.on_attempt_event(task, early.experiment, make_granted(), measured(), NOW)

    assert decision is not None
    assert decision.experiment.state is State.FAILED
    assert "ttft is 0.4 s, 100 % above its threshold of 0.2 s" in decision.experiment.reason


def test_a_second_summary_changes_nothing() -> None:
    attempt = make_granted(closed_at=NOW, outcome=AttemptOutcome.SUCCEEDED)
    done = make_experiment(State.SUCCEEDED, summary_attempt_id=ATTEMPT_ID)

    assert running.on_summary(make_task(), done, attempt, METRICS, NOW) is None


def test_only_an_open_granted_attempt_is_stopped() -> None:
    experiment = make_experiment(State.RUNNING)

    assert sent(running.stop(experiment, make_granted(), "x")) == [CancelExperiment]
    assert sent(running.stop(experiment, make_granted(closed_at=NOW), "x")) == []
    assert sent(running.stop(experiment, make_attempt(), "x")) == []


@pytest.mark.parametrize(
    "attempt", [make_attempt(closed_at=NOW), make_granted(), make_granted(closed_at=NOW)]
)
def test_refused_request_ends_a_waiting_attempt(attempt: Attempt) -> None:
    refused = Refused(code=ErrorCode.BAD_REQUEST, message="too many")
    experiment = make_experiment(State.WAITING)

    waits = waiting.on_request_refused(experiment, make_attempt(), refused, NOW)

    assert waiting.on_request_refused(experiment, attempt, refused, NOW) is None
    assert waits is not None
    assert (waits.experiment.state, told(waits)) == (State.FAILED, ["failed"])
    assert waits.experiment.reason == "GPUs were refused: too many"
    assert waits.attempt == make_attempt(reservation_ended=True, closed_at=NOW)


@pytest.mark.parametrize("attempt", [make_attempt(closed_at=NOW), make_granted(closed_at=NOW)])
def test_late_reservation_end_is_only_recorded(attempt: Attempt) -> None:
    experiment = make_experiment(State.PENDING)
    timed_out = end(ReservationState.TIMED_OUT)

    decision = waiting.on_reservation_end(experiment, attempt, timed_out, NOW, task_held_gpus=False)

    recorded = replace(attempt, reservation_revision=3, reservation_ended=True)
    assert decision == Decision(experiment=experiment, attempt=recorded)


@pytest.mark.parametrize(
    ("asked_for", "message", "reason"),
    [
        ("wrong model", "stopped", "wrong model"),
        ("", "stopped", "stopped"),
        ("", "", "cancelled"),
    ],
)
def test_a_cancelled_experiment_says_why(asked_for: str, message: str, reason: str) -> None:
    failure = Failure(kind=FailureKind.CANCELLED, message=message)
    event = replace(finished(AttemptOutcome.CANCELLED), failure=failure)

    decision = running.on_attempt_event(
        make_task(cancel_reason=asked_for),
        make_experiment(State.RUNNING),
        make_granted(),
        event,
        NOW,
    )

    assert decision is not None
    assert (decision.experiment.state, decision.experiment.reason) == (State.CANCELLED, reason)
    assert told(decision) == ["cancelled"]


def test_cluster_grant_starts_on_its_executor() -> None:
    placement = ClusterPlacement(cluster_id="k8s", gpus=2, node_name="gpu.7", hostname="gpu.7")
    grant = waiting.Grant(
        revision=2, epoch=5, node_id="k8s", devices=(), lease_ttl_seconds=30.0, cluster=placement
    )
    experiment, attempt = make_experiment(State.WAITING), make_attempt()

    decision = waiting.on_grant(make_task(), experiment, attempt, grant, NOW)

    assert decision is not None
    [start] = decision.commands
    assert isinstance(start, StartExperiment)
    assert (start.executor_id, start.cluster, start.devices) == ("k8s", placement, ())
