"""What a cluster says of an engine's objects, as a sentence and a kind of failure."""

from typing import Any

import msgspec
import pytest

from schemas.executor.attempts import FailureKind
from services.executor.runtimes.kubernetes.kinds import ObjectWithStatus
from services.executor.runtimes.kubernetes.sight import image_of, sight_of
from shared.kubernetes.objects.pods import PodDetails

SERVICE: dict[str, Any] = {"metadata": {"name": "s", "uid": "u"}}


def pod(
    status: dict[str, Any] | None = None,
    *,
    node: str = "n1",
    deleted: bool = False,
    **spec: Any,
) -> PodDetails:
    metadata = {"name": "p", "uid": "p-1"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-05T12:00:00Z"
    given = {"metadata": metadata, "spec": {"nodeName": node, **spec}, "status": status or {}}
    return msgspec.convert(given, PodDetails)


def workload(**status: Any) -> ObjectWithStatus:
    return msgspec.convert({**SERVICE, "status": status}, ObjectWithStatus)


def engine(state: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "ome-container", "state": state, **rest}]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return engine({"waiting": {"reason": reason, "message": message}})


@pytest.mark.parametrize(
    ("image_id", "told"),
    [
        ("docker.io/vllm/vllm-openai@sha256:ab", "docker.io/vllm/vllm-openai@sha256:ab"),
        ("docker-pullable://vllm/vllm-openai@sha256:ab", "vllm/vllm-openai@sha256:ab"),
        ("", ""),
    ],
)
def test_running_image_is_known_by_digest(image_id: str, told: str) -> None:
    assert image_of(pod(engine({"running": {}}, imageID=image_id))) == told
    assert image_of(pod()) == ""


UNSCHEDULABLE = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
        }
    ]
}


@pytest.mark.parametrize(
    ("found", "kind", "is_final", "says"),
    [
        pytest.param(
            pod(UNSCHEDULABLE, node=""),
            FailureKind.UNSCHEDULABLE,
            False,
            "pod p cannot be scheduled: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
            id="no room",
        ),
        pytest.param(
            pod(node=""), FailureKind.UNSCHEDULABLE, False, "pod p waits to be scheduled", id="new"
        ),
        pytest.param(
            pod(node="", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
            FailureKind.UNSCHEDULABLE,
            False,
            "pod p is held back by kueue.x-k8s.io/admission: the quota of cohort x is used up",
            id="held by an admission queue",
        ),
        pytest.param(
            pod(waiting("ContainerCreating")),
            FailureKind.READINESS_TIMEOUT,
            False,
            "pod p is being started on n1",
            id="being made",
        ),
        pytest.param(
            pod(waiting("ErrImagePull", "dial tcp: lookup registry: no such host")),
            FailureKind.IMAGE_PULL_FAILED,
            False,
            "pod p on n1: ErrImagePull: dial tcp: lookup registry: no such host",
            id="a registry that is away",
        ),
        pytest.param(
            pod(
                waiting(
                    "ErrImagePull",
                    'failed to resolve reference "docker.io/x/y:z": docker.io/x/y:z: not found',
                )
            ),
            FailureKind.IMAGE_MISSING,
            True,
            "pod p on n1: ErrImagePull: failed to resolve reference",
            id="no such image",
        ),
        pytest.param(
            pod(waiting("InvalidImageName", "couldn't parse")),
            FailureKind.IMAGE_MISSING,
            True,
            "InvalidImageName",
            id="no name of an image",
        ),
        pytest.param(
            pod(waiting("CreateContainerConfigError", 'secret "x" not found')),
            FailureKind.RUNTIME_UNAVAILABLE,
            False,
            'CreateContainerConfigError: secret "x" not found',
            id="a container that cannot be made",
        ),
        pytest.param(
            pod(engine({"terminated": {"exitCode": 1}})),
            FailureKind.ENGINE_EXITED,
            True,
            "pod p has ended",
            id="ended",
        ),
        pytest.param(
            pod(
                engine(
                    {"waiting": {"reason": "CrashLoopBackOff"}},
                    restartCount=2,
                    lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                )
            ),
            FailureKind.ENGINE_EXITED,
            True,
            "pod p has ended",
            id="started again and again",
        ),
        pytest.param(
            pod({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"}),
            FailureKind.GPU_UNAVAILABLE,
            True,
            "pod p failed: UnexpectedAdmissionError: no devices",
            id="a device that is gone",
        ),
        pytest.param(
            pod({"phase": "Failed", "reason": "Evicted", "message": "low on resource: memory"}),
            FailureKind.OUT_OF_MEMORY,
            True,
            "pod p failed: Evicted",
            id="evicted for memory",
        ),
        pytest.param(
            pod(
                {"conditions": [{"type": "DisruptionTarget", "message": "node is drained"}]},
                deleted=True,
            ),
            FailureKind.NODE_LOST,
            True,
            "pod p is being removed, and not by this executor: node is drained",
            id="removed by somebody",
        ),
        pytest.param(
            pod(engine({"running": {}})),
            FailureKind.READINESS_TIMEOUT,
            False,
            "pod p runs on n1 and loads",
            id="loading",
        ),
    ],
)
def test_how_far_a_pod_is(found: PodDetails, kind: FailureKind, is_final: bool, says: str) -> None:
    seen = sight_of(workload(), [found], admission="the quota of cohort x is used up")

    assert (seen.kind, seen.is_final, seen.is_ready) == (kind, is_final, False)
    assert says in seen.message


def test_restarted_container_counts_as_ended() -> None:
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    found = pod(engine({"running": {}}, ready=True, restartCount=1, lastState=last))

    seen = sight_of(workload(), [found])

    assert seen.is_final
    assert seen.has_restarted
    assert seen.ended is not None
    assert (seen.ended.exit_code, seen.ended.reason) == (137, "OOMKilled")


def test_a_ready_pod_is_ready() -> None:
    assert sight_of(workload(), [pod(engine({"running": {}}, ready=True))]).is_ready


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        ({}, FailureKind.UNSCHEDULABLE, "no pod has been made of it"),
        (
            {
                "modelStatus": {
                    "transitionStatus": "InvalidSpec",
                    "lastFailureInfo": {"reason": "BaseModelNotFound", "message": "no model m"},
                }
            },
            FailureKind.MODEL_MISSING,
            "OME: BaseModelNotFound: no model m",
        ),
        (
            {
                "conditions": [
                    {
                        "type": "ReplicaFailure",
                        "status": "True",
                        "reason": "FailedCreate",
                        "message": "exceeded quota: gpus",
                    },
                    {"type": "Progressing", "status": "True", "message": "fine"},
                ]
            },
            FailureKind.UNSCHEDULABLE,
            "ReplicaFailure: FailedCreate: exceeded quota: gpus",
        ),
    ],
)
def test_why_there_is_no_pod(status: dict[str, Any], kind: FailureKind, says: str) -> None:
    seen = sight_of(workload(**status), [])

    assert (seen.kind, seen.is_final, seen.message) == (kind, False, says)


@pytest.mark.parametrize(
    "refusal",
    [
        'pods "e-1" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes',
        "pods \"e\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: n",
    ],
)
def test_inadmissible_pod_fails_without_waiting(refusal: str) -> None:
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": refusal,
    }

    seen = sight_of(workload(conditions=[condition]), [])

    assert (seen.kind, seen.is_final) == (FailureKind.RUNTIME_UNAVAILABLE, True)
    assert refusal in seen.message


def test_removed_or_replaced_pod_has_ended() -> None:
    assert sight_of(None, [pod()]).kind is FailureKind.RUNTIME_UNAVAILABLE
    replaced = sight_of(workload(), [pod(engine({"running": {}}, ready=True))], first_uid="p-0")
    assert (replaced.kind, replaced.is_final) == (FailureKind.NODE_LOST, True)
