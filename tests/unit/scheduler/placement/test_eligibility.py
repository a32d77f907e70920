"""Every reason for which one device does not serve a request."""

from typing import Any
from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest, Selector, SelectorKey, SelectorOperator
from schemas.scheduler.devices import CordonCause, CordonState, DeviceState
from schemas.scheduler.reasons import ReasonCode
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import Node, ReadingState
from services.scheduler.domain.placement.eligibility import (
    blocks,
    can_ever_serve,
    reason_for,
    state_of,
    state_reasons,
)
from shared.gpu.model_names import matches_model
from tests.unit.scheduler.builders import NOW, make_device

HOLDER = UUID(int=9)
NODE = Node(node_id="alpha")


@pytest.mark.parametrize(
    ("device", "request_", "want"),
    [
        pytest.param({}, {}, set(), id="idle and free"),
        pytest.param({"used": 50.0}, {}, set(), id="at the limit"),
        pytest.param({"used": 51.0}, {}, {ReasonCode.UTILIZATION_ABOVE_LIMIT}, id="busy"),
        pytest.param({"free_mb": 40_000}, {}, set(), id="half of the memory free"),
        pytest.param(
            {"free_mb": 39_999}, {}, {ReasonCode.INSUFFICIENT_FREE_MEMORY}, id="less than half"
        ),
        pytest.param({"free_mb": 39_999}, {"min_memory_mb": 8_000}, set(), id="enough as asked"),
        pytest.param({"free_mb": 0}, {}, {ReasonCode.INSUFFICIENT_FREE_MEMORY}, id="idle but full"),
        pytest.param(
            {"used": None}, {}, {ReasonCode.UTILIZATION_UNKNOWN}, id="utilization unknown"
        ),
        pytest.param({"free_mb": None}, {}, {ReasonCode.MEMORY_UNKNOWN}, id="memory unknown"),
        pytest.param(
            {"used": None, "free_mb": None},
            {"max_utilization_percent": 100.0, "min_memory_mb": 0},
            {ReasonCode.UTILIZATION_UNKNOWN, ReasonCode.MEMORY_UNKNOWN},
            id="unknown is not free however little is asked",
        ),
        pytest.param(
            {"reading_state": ReadingState.STALE}, {}, {ReasonCode.STALE_READING}, id="stale"
        ),
        pytest.param(
            {"reading_state": ReadingState.ABSENT, "reading": None},
            {},
            {ReasonCode.NO_READING},
            id="never read",
        ),
        pytest.param(
            {"reading_state": ReadingState.AWAITING},
            {},
            {ReasonCode.AWAITING_SNAPSHOT},
            id="just released",
        ),
        pytest.param(
            {"holder": UUID(int=1), "used": 100.0, "free_mb": 0},
            {},
            {ReasonCode.HELD},
            id="a holder's use is no foreign use",
        ),
        pytest.param(
            {"holder": UUID(int=1), "quarantined": True},
            {},
            {ReasonCode.QUARANTINED},
            id="quarantined",
        ),
        pytest.param(
            {"cordoned": True, "health": HealthState.HUNG},
            {},
            {ReasonCode.CORDONED, ReasonCode.UNHEALTHY},
            id="cordoned and hung",
        ),
        pytest.param({}, {"node_ids": ("beta",)}, {ReasonCode.NODE_MISMATCH}, id="other node"),
        pytest.param(
            {}, {"device_uuids": ("GPU-9",)}, {ReasonCode.UUID_MISMATCH}, id="other device"
        ),
        pytest.param(
            {"free_mb": 10_000},
            {"min_memory_mb": 81_000, "gpu_models": ("A100",)},
            {
                ReasonCode.INSUFFICIENT_TOTAL_MEMORY,
                ReasonCode.INSUFFICIENT_FREE_MEMORY,
                ReasonCode.MODEL_MISMATCH,
            },
            id="several at once",
        ),
    ],
)
def test_device_is_blocked_for_exact_reasons(
    device: dict[str, Any], request_: dict[str, Any], want: set[ReasonCode]
) -> None:
    made, request = make_device(**device), GpuRequest(**request_)

    codes = list(blocks(made, request, NODE))

    assert set(codes) == want
    assert len(codes) == len(want)
    for code in codes:
        reason = reason_for(code, made, request, NODE)
        assert reason.device_uuid == made.uuid
        assert reason.message.startswith("GPU 1 on alpha ")


@pytest.mark.parametrize(
    ("models", "want"),
    [
        pytest.param((), True, id="no selector"),
        pytest.param(("h100",), True, id="part of the name, any case"),
        pytest.param(("NVIDIA H100-80GB_HBM3",), True, id="any separator"),
        pytest.param(("A100", "H100"), True, id="one of several"),
        pytest.param(("H200",), False, id="another"),
    ],
)
def test_models_match_by_part_of_the_name(models: tuple[str, ...], want: bool) -> None:
    assert matches_model("NVIDIA H100 80GB HBM3", models) is want


@pytest.mark.parametrize(
    ("name", "told", "want"),
    [
        ("Tesla V100-PCIE-16GB", "7.0", ReasonCode.COMPUTE_CAPABILITY_MISMATCH),
        ("Tesla T4", None, ReasonCode.COMPUTE_CAPABILITY_MISMATCH),
        ("NVIDIA A100-SXM4-80GB", None, None),
        ("NVIDIA A100-SXM4-80GB", "8.0", None),
        ("NVIDIA GB200", "10.0", None),
        ("NVIDIA Z900", "8.0", None),
        ("NVIDIA Z900", None, ReasonCode.SELECTOR_UNKNOWN),
        ("AMD Instinct MI300X", None, None),
    ],
)
def test_capability_of_nvidia_is_known_by_name(
    name: str, told: str | None, want: ReasonCode | None
) -> None:
    device = make_device(name=name, compute_capability=told)

    codes = list(blocks(device, GpuRequest(min_compute_capability="8.0"), NODE))

    assert codes == ([want] if want is not None else [])
    assert not list(blocks(device, GpuRequest(), NODE))


def test_too_old_gpu_tells_what_to_do() -> None:
    device, request = make_device(name="Tesla T4"), GpuRequest(min_compute_capability="8.0")

    reason = reason_for(ReasonCode.COMPUTE_CAPABILITY_MISMATCH, device, request, NODE)

    assert reason.message == (
        "GPU 1 on alpha (Tesla T4) has compute capability 7.5, 8.0 is needed"
        " (bfloat16, tf32, fp8, fp4, marlin); set dtype to half (--dtype half) for older GPUs"
    )


def test_device_of_unknown_size_may_serve_later() -> None:
    device = make_device(memory_total_mb=None, reading=None)

    assert can_ever_serve(device, GpuRequest(min_memory_mb=100_000), NODE)


@pytest.mark.parametrize(("asked_mb", "needed"), [(None, "40000"), (30_000, "30000")])
def test_small_free_memory_tells_what_is_needed(asked_mb: int | None, needed: str) -> None:
    device, request = make_device(1, free_mb=10_000), GpuRequest(min_memory_mb=asked_mb)

    reason = reason_for(ReasonCode.INSUFFICIENT_FREE_MEMORY, device, request, NODE)

    assert reason.message == f"GPU 1 on alpha has 10000 MB free, {needed} MB are needed"


@pytest.mark.parametrize(
    ("device", "want"),
    [
        ({}, DeviceState.FREE),
        ({"cordoned": True}, DeviceState.CORDONED),
        ({"cordoned": True, "holder": HOLDER}, DeviceState.HELD),
        ({"cordoned": True, "holder": HOLDER, "quarantined": True}, DeviceState.QUARANTINED),
        ({"cordoned": True, "health": HealthState.HUNG}, DeviceState.CORDONED),
        ({"health": HealthState.HUNG, "holder": HOLDER}, DeviceState.HELD),
    ],
)
def test_quarantine_outweighs_holder_and_cordon(device: dict[str, Any], want: DeviceState) -> None:
    assert state_of(make_device(**device), NODE) is want


@pytest.mark.parametrize(
    ("device", "says"),
    [
        pytest.param(
            {"health": HealthState.HUNG, "health_detail": "no answer"},
            "is hung (no answer)",
            id="hung",
        ),
        pytest.param(
            {"foreign_pids": (4711,)},
            "runs processes that no reservation explains (4711)",
            id="a stranger on it",
        ),
        pytest.param(
            {"reading_state": ReadingState.ABSENT, "reading": None},
            "has no reading: its agent has not sent one yet, or has stopped",
            id="the agent left",
        ),
        pytest.param({"used": 90.0}, "is 90 % utilized by others, 50 % is the limit", id="busy"),
        pytest.param(
            {"mig_enabled": True},
            "is divided into MIG instances, which are granted instead of it",
            id="divided",
        ),
    ],
)
def test_ungrantable_device_is_never_called_free(device: dict[str, Any], says: str) -> None:
    made = make_device(**device)

    assert state_of(made, NODE) is DeviceState.UNAVAILABLE
    assert [reason.message for reason in state_reasons(made, NODE)] == [says]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"set_by": "alice", "reason": "hot"}, "hot; set by alice at 2026-01-01 00:00 UTC"),
        ({"since_at": None}, "set by an operator"),
        (
            {"cause": CordonCause.FAULT, "reason": "XID 48"},
            "XID 48; set by a fault at 2026-01-01 00:00 UTC",
        ),
    ],
)
def test_cordon_reason_tells_who_why_and_until(changes: dict[str, Any], says: str) -> None:
    given = {"cause": CordonCause.OPERATOR, "until": "it is uncordoned", "since_at": NOW}
    device = make_device(cordoned=True, cordon=CordonState(**{**given, **changes}))

    (reason,) = state_reasons(device, NODE)

    assert reason.message == f"is cordoned: {says}, until it is uncordoned"


def test_nothing_is_free_on_a_lost_node() -> None:
    lost = Node(node_id="alpha", lost=True)

    assert state_of(make_device(), lost) is DeviceState.UNAVAILABLE
    assert [reason.code for reason in state_reasons(make_device(), lost)] == [ReasonCode.NODE_LOST]


def test_unadmitted_node_has_nothing_free() -> None:
    new = Node(node_id="alpha", admitted=False)

    (reason,) = state_reasons(make_device(), new)

    assert state_of(make_device(), new) is DeviceState.UNAVAILABLE
    assert reason.message == "is on a node that is new: `gpusteward node admit alpha`"


def test_device_state_does_not_name_its_holder() -> None:
    assert state_of(make_device(holder=HOLDER), NODE) is DeviceState.HELD
    assert state_reasons(make_device(holder=HOLDER), NODE) == ()


def test_old_driver_for_image_is_told_what_to_do() -> None:
    device = make_device()
    request = GpuRequest(
        require=(
            Selector(
                key=SelectorKey.CUDA_DRIVER_VERSION,
                operator=SelectorOperator.AT_LEAST,
                values=("12.4",),
            ),
        )
    )
    old, new = (Node(node_id="alpha", cuda_driver_version=cuda) for cuda in ("12.2", "12.10"))

    assert can_ever_serve(device, request, new)
    assert not can_ever_serve(device, request, old)
    said = reason_for(ReasonCode.CUDA_DRIVER_MISMATCH, device, request, old).message
    assert "serves CUDA 12.2, which is not cuda_driver_version at least 12.4" in said
    assert "update its driver" in said
