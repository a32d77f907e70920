"""What people read about 128 GPUs: counts, holders and places, never a clause for each GPU."""

from datetime import timedelta
from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reason_groups import MAX_DIGEST, digest, group, predicate
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import ReservationState
from services.scheduler.domain.advice.holder_names import Holder, with_names
from services.scheduler.domain.model.fleet import Fleet, Node
from services.scheduler.domain.placement.eligibility import reason_for
from services.scheduler.domain.placement.placement import PlacementContext
from services.scheduler.domain.placement.reasons import (
    availability_sentence,
    blocking_reasons,
    impossible_reasons,
    summary_sentence,
)
from tests.support.tables import for_each
from tests.unit.scheduler.builders import NOW, make_device

MAX_MESSAGE = 300
NODES = [f"gpu-{n:02}" for n in range(1, 17)]
H100, H200, L40S = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA L40S"
MODELS = [H200] * 6 + [H100] * 5 + [L40S] * 5


def fleet_of_128(holders: int = 0, held: int = 0, cordoned: tuple[str, ...] = ()) -> Fleet:
    """Sixteen nodes of eight; the first `held` GPUs are of so many holders in turn."""
    return Fleet.of(
        [
            make_device(
                8 * n + index,
                node_id=node,
                index=index,
                uuid=f"GPU-{n:02}{index}-4a5b6c7d-8e9f-0a1b-2c3d-4e5f60718293",
                name=MODELS[n],
                holder=UUID(int=(8 * n + index) % holders + 1) if 8 * n + index < held else None,
                cordoned=node in cordoned,
            )
            for n, node in enumerate(NODES)
            for index in range(8)
        ]
    )


def reasons_of(fleet: Fleet, request: GpuRequest) -> tuple[Reason, ...]:
    holders = {
        UUID(int=n): Holder(
            holder=f"job-{n}",
            namespace="vision",
            requested_at=NOW,
            granted_at=NOW - timedelta(minutes=12),
        )
        for n in range(1, 200)
    }
    return with_names(blocking_reasons(PlacementContext(fleet=fleet), request), holders, NOW)


def test_sentence_of_128_gpus_counts_holders() -> None:
    fleet = fleet_of_128(holders=3, held=56, cordoned=("gpu-08",))

    reasons = reasons_of(fleet, GpuRequest(gpus=8, nodes=12))

    said = digest(reasons)
    assert said == (
        "8 nodes of 12 asked for can be had together now,"
        " 56 GPUs held by 3 reservations (job-1, job-2, job-3), 8 GPUs on gpu-08 cordoned,"
        " 8 nodes with too few free GPUs"
    )
    whole = summary_sentence(ReservationState.QUEUED, GpuRequest(gpus=8, nodes=12), reasons, 2, 5)
    assert len(whole) <= MAX_MESSAGE


def test_never_matching_gpus_are_told_alone() -> None:
    fleet = fleet_of_128(holders=2, held=104)

    reasons = reasons_of(fleet, GpuRequest(gpus=8, nodes=5, gpu_models=("H100",)))

    assert digest(reasons) == (
        "0 nodes of 5 asked for can be had together now, 40 GPUs held by 2 reservations"
        " (job-1, job-2), 5 nodes with too few free GPUs, 88 GPUs of another model"
    )


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        pytest.param(
            GpuRequest(gpu_models=("A100",)),
            "no GPU is A100, there are 48 NVIDIA H200, 40 NVIDIA H100 80GB HBM3, 40 NVIDIA L40S",
            id="model",
        ),
        pytest.param(GpuRequest(node_ids=("gpu-99",)), "there is no node gpu-99, but", id="node"),
        pytest.param(
            GpuRequest(min_memory_mb=900_000),
            "no node has any that match: 128 GPUs with too little memory",
            id="memory",
        ),
        pytest.param(
            GpuRequest(gpu_models=("H100",), min_memory_mb=900_000),
            "88 GPUs of another model, 40 GPUs with too little memory",
            id="model with memory",
        ),
    ],
)
def test_what_no_gpu_of_128_is_takes_one_sentence(request_: GpuRequest, said: str) -> None:
    reasons = impossible_reasons(fleet_of_128(), request_)

    sentence = availability_sentence(request_, reasons, (), impossible=True)
    rejection = summary_sentence(ReservationState.REJECTED, request_, reasons, None, 0)

    assert said in sentence
    assert rejection.count(said) == 1
    assert rejection.count(" GPUs of another model") <= 1
    assert max(len(sentence), len(rejection)) <= MAX_MESSAGE


@for_each("holders", (1, 2, 9, 128))
def test_a_digest_and_its_groups_stay_short(holders: int) -> None:
    fleet = fleet_of_128(holders=holders, held=128, cordoned=("gpu-01", "gpu-09"))

    reasons = reasons_of(fleet, GpuRequest(gpus=8))

    assert len(reasons) > 128
    assert len(digest(reasons)) <= MAX_DIGEST
    groups = group(reasons)
    assert len(groups) <= 16
    assert sum(each.count for each in groups if each.code is ReasonCode.HELD) == 128


def test_group_is_one_holder_with_its_gpus() -> None:
    held, few = group(reasons_of(fleet_of_128(holders=1, held=128), GpuRequest()))

    assert (held.code, held.count, len(held.node_ids)) == (ReasonCode.HELD, 128, 16)
    assert held.says == "each is held by job-1 (reservation 000000000001, for 12 min)"
    assert (few.count, few.says) == (16, "each has 0 of 1 GPU asked for")


def test_more_than_three_reasons_are_counted() -> None:
    devices = [make_device(n, used=50.0 + n) for n in range(1, 9)]
    context = PlacementContext(fleet=Fleet.of(devices))

    *shown, rest, _ = group(blocking_reasons(context, GpuRequest(max_utilization_percent=40)))

    assert shown[0].says == "GPU 1 on alpha is 51 % utilized by others, 40 % is the limit"
    assert rest.says == "6 GPUs in use without a reservation, for 6 more causes of this kind"


def test_shared_gpu_has_several_holders() -> None:
    shared = [
        Reason(
            code=ReasonCode.HELD,
            message=f"GPU {n} on alpha is held by ada (reservation 1, for 1 h) and 1 more",
            node_id="alpha",
            device_uuid=f"GPU-{n}",
        )
        for n in range(3)
    ]

    assert digest(shared) == "3 GPUs on alpha already held"


@for_each("code", ReasonCode)
def test_sentence_about_device_drops_its_subject(code: ReasonCode) -> None:
    reason = reason_for(code, make_device(), GpuRequest(), Node(node_id="alpha"))

    assert not predicate(reason).startswith("GPU 1 on alpha")
    assert reason.message.startswith("GPU 1 on alpha ")
