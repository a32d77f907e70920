"""What a person reads below the sentence that says why."""

from datetime import timedelta

import pytest

from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState
from schemas.scheduler.reasons import ChangeKind, Reason, ReasonCode, Suggestion
from schemas.scheduler.views import AvailabilityView, Replay, ReplayedDecision
from services.cli.commands.gpus.insight import print_replay, starting_lines
from services.cli.display.output import until
from services.cli.display.tables import help_lines
from tests.support.worlds.gateway_views import NOW, make_attempt, make_experiment


def test_help_says_when_it_starts_what_would_help_and_what_is_left_out() -> None:
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


def test_a_replay_says_of_each_decision_whether_it_is_the_same(
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


def test_why_says_what_keeps_an_experiment_that_has_its_gpus_from_being_ready() -> None:
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


def test_why_says_what_was_made_ready_for_an_experiment_that_waits() -> None:
    said = "while it waited, on n1: vllm/vllm-openai:v1 was pulled"
    waiting = make_experiment(state=ExperimentState.WAITING, prepared=said)

    assert starting_lines([waiting]) == [f"experiment {waiting.experiment_id}: {said}"]
