"""What a person reads below the sentence that says why."""

from datetime import timedelta

import pytest

from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState
from schemas.scheduler.reasons import ChangeKind, Reason, ReasonCode, Suggestion
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import AvailabilityView, Replay, ReplayedDecision
from services.cli.commands.gpus.insight import print_replay, starting_lines
from services.cli.commands.gpus.reservations import require_grant
from services.cli.commands.tasks.watch import state_line
from services.cli.display.output import until
from services.cli.display.reason_tables import (
    NO_END,
    help_lines,
    reason_group_table,
    reason_table,
)
from services.cli.failures import CommandFailed
from tests.support.worlds.gateway_views import NOW, make_attempt, make_experiment, make_reservation


def test_help_text_has_start_and_remedies() -> None:
    view = AvailabilityView(
        available=False,
        message="",
        reasons=(Reason(code=ReasonCode.HELD, message="held"),),
        reasons_left_out={ReasonCode.HELD: 5_711, ReasonCode.CORDONED: 2},
        expected_start_at=NOW + timedelta(minutes=12),
        suggestion=Suggestion(
            changes=(ChangeKind.FEWER_GPUS,),
            request=GpuRequest(),
            message="ask for 1 GPU instead of 2: then it is granted now",
        ),
    )

    starts, helps, rest = help_lines(view, NOW)

    assert starts.startswith("expected start: ")
    assert starts.endswith("UTC, in 12m")
    assert helps == "what would help: ask for 1 GPU instead of 2: then it is granted now"
    assert rest == (
        "of 5714 reasons 5713 are left out below: 5711 GPUs already held, 2 GPUs cordoned"
    )
    assert help_lines(AvailabilityView(available=True, message="")) == []
    assert until(NOW, NOW + timedelta(hours=1)) == "0s"


FLEET_REASONS = tuple(
    Reason(
        code=ReasonCode.HELD,
        message=f"GPU {n % 8} on gpu-{n // 8:02} is held by job-{n % 9} (reservation {n % 9})",
        node_id=f"gpu-{n // 8:02}",
        device_uuid=f"GPU-{n}",
    )
    for n in range(128)
)


def test_a_refusal_of_128_gpus_is_a_sentence() -> None:
    rejected = make_reservation(state=ReservationState.REJECTED, reasons=FLEET_REASONS)

    with pytest.raises(CommandFailed) as refusal:
        require_grant(rejected)

    message = str(refusal.value)
    assert "128 GPUs held by 9 reservations (job-0, job-1, 7 more)" in message
    assert len(message) <= 300


def test_watched_reservation_has_summary_in_line() -> None:
    waiting = make_reservation(
        state=ReservationState.QUEUED, devices=(), reasons=FLEET_REASONS[:10], summary="8 are held"
    )

    assert state_line(waiting).endswith("queued  8 are held")


def test_reasons_of_128_gpus_are_a_row_a_holder() -> None:
    table = reason_group_table(FLEET_REASONS)

    assert len(table.rows) == 9
    assert table.rows[0] == [
        "held",
        "15",
        "gpu-00, gpu-01, gpu-02, gpu-03 and 11 more",
        "each is held by job-0 (reservation 0)",
    ]
    assert len(reason_table(FLEET_REASONS).rows) == 128


def test_unknown_start_is_shown_as_unknown() -> None:
    waits = AvailabilityView(available=False, message="")

    assert help_lines(waits, NOW) == [f"expected start: unknown, {NO_END}"]
    assert help_lines(AvailabilityView(available=False, message="", impossible=True), NOW) == []


def test_replay_compares_each_decision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    grant = {"type": "grant", "reservation_id": "019b8e50-7000-7000-8000-000000000001"}
    decisions = (
        ReplayedDecision(decision_id=7, term=1, decided_at=NOW, same=True, recorded=[grant]),
        ReplayedDecision(
            decision_id=8, term=1, decided_at=NOW, same=False, recorded={"grant": 900}, replayed=[]
        ),
    )

    print_replay(Replay(decisions=decisions, keyframe_id=5, checked=4, different=1, next_from_id=9))

    shown = capsys.readouterr().out
    assert "grant 000000000001" in shown
    assert "DIFFERENT" in shown
    assert "grant x900" in shown
    assert "4 decisions decided again from keyframe 5 on, 1 came out otherwise" in shown
    assert "gpusteward replay --from 9" in shown


def test_why_shows_what_delays_readiness() -> None:
    placement = ClusterPlacement(cluster_id="k8s", gpus=1, node_name="gpu-7")
    held = make_attempt(cluster=placement, message="0/3 nodes are available: too little memory")
    starting = make_experiment(state=ExperimentState.RUNNING, attempts=(held,))
    others = [
        make_experiment(state=ExperimentState.FAILED, attempts=(held,)),
        make_experiment(state=ExperimentState.RUNNING, attempts=(held, make_attempt())),
        make_experiment(state=ExperimentState.WAITING),
    ]

    (line,) = starting_lines([starting, *others])

    said = "running on k8s/gpu-7: 0/3 nodes are available: too little memory"
    assert line == f"experiment {starting.experiment_id}: {said}"


def test_why_shows_preparations_of_waiting_experiment() -> None:
    said = "while it waited, on n1: vllm/vllm-openai:v1 was pulled"
    waiting = make_experiment(state=ExperimentState.WAITING, prepared=said)

    assert starting_lines([waiting]) == [f"experiment {waiting.experiment_id}: {said}"]
