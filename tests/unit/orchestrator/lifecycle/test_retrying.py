"""How often an experiment is tried, and where, by why its attempts did not succeed."""

import itertools
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from schemas.errors import ErrorCode, Refused
from schemas.executor.attempts import AttemptOutcome, Failure, FailureKind
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest
from schemas.orchestrator.experiments import ExperimentRetrying, ExperimentState
from schemas.scheduler.reservations import ReservationState
from services.orchestrator.domain.lifecycle import running
from services.orchestrator.domain.lifecycle.retrying import Step, next_step, nodes_to_request
from services.orchestrator.domain.lifecycle.start_refusals import failure_of_refusal
from services.orchestrator.domain.lifecycle.waiting import ReservationEnd, on_reservation_end
from services.orchestrator.domain.records import Experiment
from shared.failures import RULES, FailureRule
from tests.support.tables import for_each
from tests.support.worlds.orchestrator_records import (
    NOW,
    make_experiment,
    make_file,
    make_granted,
    make_task,
)

PORT, CUDA, EXITED, LOST = (
    FailureKind.PORT_TAKEN,
    FailureKind.CUDA_ERROR,
    FailureKind.ENGINE_EXITED,
    FailureKind.NODE_LOST,
)
SOME_RULES = {
    PORT: FailureRule(retries=3, elsewhere=False, hint="-"),
    CUDA: FailureRule(retries=1, elsewhere=True, hint="-"),
    EXITED: FailureRule(retries=0, elsewhere=False, hint="-"),
    LOST: FailureRule(retries=2, elsewhere=True, hint="-"),
}
FAILED, INTERRUPTED = AttemptOutcome.FAILED, AttemptOutcome.INTERRUPTED

Ending = tuple[AttemptOutcome, FailureKind | None]


def steps(
    endings: Sequence[Ending], *, max_attempts: int = 5, cancel_requested: bool = False
) -> tuple[list[Step], Experiment, str]:
    """What follows from one ending after another, until nothing is repeated any more."""
    task = make_task(
        make_file(optimization={"max_attempts": max_attempts}), cancel_requested=cancel_requested
    )
    experiment, found, reason = make_experiment(ExperimentState.RUNNING), [], ""
    for outcome, kind in endings:
        failure = Failure(kind=kind, message=f"{kind.value} it was") if kind is not None else None
        attempt = make_granted(outcome=outcome, failure=failure)
        following = next_step(task, experiment, attempt, SOME_RULES)
        experiment, reason = following.experiment, following.reason
        found.append(following.step)
        if following.step is not Step.REPEAT:
            break
    return found, experiment, reason


@pytest.mark.parametrize(
    ("endings", "repeated", "reason"),
    [
        pytest.param([(FAILED, EXITED)], 0, "engine_exited it was", id="a kind that stays"),
        pytest.param([(FAILED, None)], 0, "the attempt failed", id="nobody says why"),
        pytest.param(
            [(FAILED, CUDA)] * 2,
            1,
            "failed 2 times, the last time: cuda_error it was",
            id="a kind that may pass, as often as its rule says",
        ),
        pytest.param(
            [(FAILED, PORT), (FAILED, CUDA), (FAILED, PORT), (FAILED, CUDA)],
            3,
            "failed 4 times, the last time: cuda_error it was",
            id="each kind is counted for itself",
        ),
        pytest.param(
            [(INTERRUPTED, LOST)] * 5,
            4,
            "interrupted 5 times, the last time: node_lost it was",
            id="interruptions are bound by max_attempts alone",
        ),
        pytest.param(
            [
                (FAILED, PORT),
                (INTERRUPTED, LOST),
                (FAILED, PORT),
                (INTERRUPTED, LOST),
                (FAILED, PORT),
            ],
            4,
            "interrupted 2 times and failed 3 times, the last time: port_taken it was",
            id="max_attempts bounds both together",
        ),
        pytest.param(
            [(INTERRUPTED, None), (FAILED, EXITED)],
            1,
            "interrupted 1 time and failed 1 time, the last time: engine_exited it was",
            id="a failure after an interruption",
        ),
    ],
)
def test_failure_kind_decides_repetitions(
    endings: list[Ending], repeated: int, reason: str
) -> None:
    found, experiment, said = steps(endings)

    assert found == [Step.REPEAT] * repeated + [Step.FAIL]
    assert said == reason
    assert experiment.attempts_made == len(endings)
    assert experiment.interrupted_attempts == sum(o is INTERRUPTED for o, _ in endings)


def test_any_sequence_of_ends_is_bounded() -> None:
    kinds: list[Ending] = [(FAILED, PORT), (FAILED, CUDA), (INTERRUPTED, LOST)]
    for max_attempts in (1, 2, 4):
        for endings in itertools.product(kinds, repeat=5):
            found, experiment, _ = steps(endings, max_attempts=max_attempts)

            assert found[-1] is Step.FAIL
            assert len(found) <= max_attempts
            for kind, count in experiment.failed_attempts.items():
                assert count <= SOME_RULES[kind].retries + 1


@pytest.mark.parametrize(
    ("ending", "want"),
    [
        ((FAILED, PORT), Step.CANCEL),
        ((INTERRUPTED, LOST), Step.CANCEL),
        ((FAILED, EXITED), Step.FAIL),
    ],
)
def test_a_task_that_is_cancelled_repeats_nothing(ending: Ending, want: Step) -> None:
    found, _, _ = steps([ending], cancel_requested=True)

    assert found == [want]


@pytest.mark.parametrize(
    ("endings", "want"),
    [
        pytest.param([(FAILED, PORT)], (), id="not the node's fault"),
        pytest.param([(FAILED, CUDA)], ("n1",), id="perhaps the node's fault"),
        pytest.param([(INTERRUPTED, LOST), (FAILED, PORT)], ("n1",), id="remembered"),
    ],
)
def test_a_node_that_may_be_at_fault_is_avoided(
    endings: list[Ending], want: tuple[str, ...]
) -> None:
    _, experiment, _ = steps(endings)

    assert experiment.avoided_node_ids == want


@pytest.mark.parametrize(
    ("kind", "node_name", "nodes", "others"),
    [
        pytest.param(CUDA, "gpu.2", ("gpu.1", "gpu.2"), (), id="the chosen node's"),
        pytest.param(CUDA, None, ("gpu.1",), ("k8s",), id="chosen by the cluster itself"),
        pytest.param(
            FailureKind.MODEL_MISSING, "gpu.2", ("gpu.1",), ("k8s",), id="of the whole cluster"
        ),
        pytest.param(PORT, "gpu.2", ("gpu.1",), (), id="nowhere better"),
    ],
)
def test_cluster_node_is_avoided_not_the_cluster(
    kind: FailureKind, node_name: str | None, nodes: tuple[str, ...], others: tuple[str, ...]
) -> None:
    wanted = ClusterRequest(avoided_node_names=("gpu.1",))
    attempt = make_granted(
        outcome=FAILED,
        failure=Failure(kind=kind, message="so it was"),
        executor_id="k8s",
        devices=(),
        cluster=ClusterPlacement(cluster_id="k8s", gpus=1, node_name=node_name),
    )
    experiment = make_experiment(
        ExperimentState.RUNNING, request=GpuRequest(node_ids=("k8s",), cluster=wanted)
    )

    following = next_step(make_task(), experiment, attempt).experiment

    assert following.request.cluster is not None
    assert following.request.cluster.avoided_node_names == nodes
    assert following.avoided_node_ids == others
    assert nodes_to_request(following, ("k8s",)) == ("k8s",)


@pytest.mark.parametrize(
    ("avoided", "nodes", "num_nodes", "want"),
    [
        pytest.param((), ("n1", "n2"), 1, ("n1", "n2"), id="nothing to avoid"),
        pytest.param(("n1",), ("n1", "n2"), 1, ("n2",), id="another is left"),
        pytest.param(("n1",), ("n1",), 1, ("n1",), id="it is the only one"),
        pytest.param(("n1", "n2"), ("n1", "n2"), 1, ("n1", "n2"), id="all have failed"),
        pytest.param(("n1",), ("n1", "n2"), 2, ("n1", "n2"), id="a gang needs both"),
        pytest.param(("n1",), ("n1", "n2", "n3"), 2, ("n2", "n3"), id="a gang elsewhere"),
        pytest.param(("n1",), (), 1, ("n9",), id="nobody is present: as asked before"),
    ],
)
def test_avoiding_never_leaves_too_few_nodes(
    avoided: tuple[str, ...], nodes: tuple[str, ...], num_nodes: int, want: tuple[str, ...]
) -> None:
    experiment = make_experiment(
        ExperimentState.PENDING,
        avoided_node_ids=avoided,
        request=GpuRequest(nodes=num_nodes, node_ids=("n9",)),
    )

    assert nodes_to_request(experiment, nodes) == want


@for_each("kind", FailureKind)
def test_every_failure_kind_has_its_consequence(kind: FailureKind) -> None:
    """The rules as they are: one event, and the counters that it leaves."""
    attempt = make_granted(outcome=FAILED, failure=Failure(kind=kind, message="so it was"))

    following = next_step(make_task(), make_experiment(ExperimentState.RUNNING), attempt)

    assert following.step is (Step.REPEAT if RULES[kind].retries else Step.FAIL)
    assert following.experiment.failed_attempts == {kind: 1}


def test_retry_event_names_kind_and_avoided_node() -> None:
    reply = Refused(code=ErrorCode.UNSUPPORTED, message="dockerd is away", path="$.engine.runtime")

    decision = running.on_start_answered(
        make_task(), make_experiment(ExperimentState.STARTING), make_granted(), reply, NOW
    )

    assert decision is not None
    assert decision.experiment.state is ExperimentState.PENDING
    [event] = decision.events
    assert isinstance(event, ExperimentRetrying)
    assert event.failure_kind is FailureKind.RUNTIME_UNAVAILABLE
    assert event.avoided_node_ids == ("n1",)
    assert event.revision == decision.experiment.revision


@pytest.mark.parametrize(
    ("code", "path", "want"),
    [
        (ErrorCode.LEASE_LOST, None, FailureKind.LEASE_LOST),
        (ErrorCode.STALE_EPOCH, "$.devices[0]", FailureKind.LEASE_LOST),
        (ErrorCode.CONFLICT, None, FailureKind.CANCELLED),
        (ErrorCode.BAD_REQUEST, "$.parameters.x", FailureKind.BAD_PARAMETER),
        (ErrorCode.BAD_REQUEST, "$.runtime_image_tag", FailureKind.BAD_PARAMETER),
        (ErrorCode.BAD_REQUEST, "$.model.id_or_path", FailureKind.MODEL_MISSING),
        (ErrorCode.UNSUPPORTED, "$.base_runtime", FailureKind.ENGINE_MISSING),
        (ErrorCode.UNSUPPORTED, "$.engine.runtime", FailureKind.RUNTIME_UNAVAILABLE),
        (ErrorCode.UNSUPPORTED, "$.runtime_image_tag", FailureKind.IMAGE_MISSING),
        (ErrorCode.UNSUPPORTED, "$.benchmark.tool", FailureKind.BENCHMARK_FAILED),
        (ErrorCode.UNSUPPORTED, "$.devices[1].share", FailureKind.GPU_UNAVAILABLE),
        (ErrorCode.UNSUPPORTED, None, FailureKind.ENGINE_MISSING),
        (ErrorCode.FORBIDDEN, None, FailureKind.INTERNAL),
    ],
)
def test_a_refusal_is_a_failure_of_some_kind(
    code: ErrorCode, path: str | None, want: FailureKind
) -> None:
    failure = failure_of_refusal(Refused(code=code, message="no", path=path))

    assert failure.kind is want
    assert failure.hint == RULES[want].hint


def test_preemption_costs_no_attempt_in_any_order() -> None:
    task = make_task(make_file(optimization={"max_attempts": 2}, gpus={"preemptible": True}))
    failure = Failure(kind=FailureKind.LEASE_LOST, message="the reservation was fenced")
    ended = ReservationEnd(revision=3, state=ReservationState.PREEMPTED, was_granted=True)
    experiment = make_experiment(ExperimentState.RUNNING)

    for is_end_first in (True, False, True, False):
        attempt = make_granted(outcome=INTERRUPTED, failure=failure, is_preempted=is_end_first)
        following = next_step(task, experiment, attempt)
        assert following.step is Step.REPEAT
        closed = replace(attempt, closed_at=NOW)
        end = on_reservation_end(following.experiment, closed, ended, NOW, task_held_gpus=False)
        assert end is not None
        experiment = end.experiment

    assert (experiment.attempts_made, experiment.attempts_spent) == (4, 0)


def test_stopped_executor_costs_no_attempt() -> None:
    task = make_task(make_file(optimization={"max_attempts": 2}))
    failure = Failure(kind=FailureKind.EXECUTOR_RESTARTED, message="the executor was stopped")
    stopped = make_granted(outcome=INTERRUPTED, failure=failure, executor_stopped=True)
    killed = make_granted(outcome=INTERRUPTED, failure=failure)
    experiment, found = make_experiment(ExperimentState.RUNNING), []

    for attempt in (stopped, killed, stopped, stopped, killed):
        following = next_step(task, experiment, attempt)
        experiment = following.experiment
        found.append(following.step)

    assert found == [Step.REPEAT] * 4 + [Step.FAIL]
    assert experiment.attempts_made == 5
