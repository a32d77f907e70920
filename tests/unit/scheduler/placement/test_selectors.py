"""What a selector matches, and what it says of what it does not."""

from typing import Any

import pytest

from schemas.gpus.gpu_request import GpuRequest, Selector, SelectorKey, SelectorOperator
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.reasons import ReasonCode
from services.scheduler.domain.model.fleet import Node
from services.scheduler.domain.placement.decisions import Grant
from services.scheduler.domain.placement.eligibility import blocks, reason_for, state_of
from services.scheduler.domain.placement.selectors import mismatch
from shared.gpu.selectors import version
from tests.unit.scheduler.builders import NOW, make_device, make_engine, queue

NODE = Node(node_id="alpha", labels={"zone": "a", "rank": "7"}, cuda_driver_version="12.4")
CAPABLE = {"compute_capability": "9.0", "numa_node": 1}
UNKNOWN = ReasonCode.SELECTOR_UNKNOWN


def make_selector(key: str, operator: str = "in", *values: str) -> Selector:
    label = None
    if key.startswith("label:"):
        key, _, label = key.partition(":")
    return Selector(
        key=SelectorKey(key), operator=SelectorOperator(operator), values=values, label=label
    )


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(("node", "in", "beta", "alpha"), None, id="one of the nodes"),
        pytest.param(("node", "not_in", "alpha"), ReasonCode.NODE_MISMATCH, id="not this node"),
        pytest.param(("gpu_model", "in", "h100 80gb"), None, id="a part of the name"),
        pytest.param(("gpu_model", "in", "A100"), ReasonCode.MODEL_MISMATCH, id="another model"),
        pytest.param(("gpu_model", "not_in", "H100"), ReasonCode.MODEL_MISMATCH, id="not this one"),
        pytest.param(("gpu_uuid", "in", "GPU-1"), None, id="this device"),
        pytest.param(("gpu_uuid", "in", "GPU-2"), ReasonCode.UUID_MISMATCH, id="another device"),
        pytest.param(("compute_capability", "at_least", "8.9"), None, id="capable enough"),
        pytest.param(
            ("compute_capability", "at_least", "10.0"),
            ReasonCode.COMPUTE_CAPABILITY_MISMATCH,
            id="9 is less than 10",
        ),
        pytest.param(("compute_capability", "in", "9"), None, id="9 is 9.0"),
        pytest.param(("cuda_driver_version", "at_least", "12.4"), None, id="the same driver"),
        pytest.param(
            ("cuda_driver_version", "at_most", "12.3"),
            ReasonCode.CUDA_DRIVER_MISMATCH,
            id="too new a driver",
        ),
        pytest.param(("numa_node", "in", "1"), None, id="this NUMA node"),
        pytest.param(("numa_node", "in", "0"), ReasonCode.NUMA_MISMATCH, id="the other NUMA node"),
        pytest.param(("label:zone", "in", "a"), None, id="a label's value"),
        pytest.param(("label:zone", "in", "b"), ReasonCode.LABEL_MISMATCH, id="another value"),
        pytest.param(("label:rank", "at_least", "6.5"), None, id="a label that is a number"),
        pytest.param(("label:zone", "at_least", "1"), UNKNOWN, id="a label that is no number"),
        pytest.param(("label:disk", "exists"), ReasonCode.LABEL_MISMATCH, id="no such label"),
        pytest.param(("label:disk", "not_in", "ssd"), None, id="no such label is not that value"),
        pytest.param(("label:zone", "exists"), None, id="such a label"),
        pytest.param(("node", "in"), ReasonCode.NODE_MISMATCH, id="none of no values"),
    ],
)
def test_a_selector_matches(asked: tuple[str, ...], want: ReasonCode | None) -> None:
    device = make_device(1, **CAPABLE)

    assert mismatch(make_selector(*asked), device, NODE) == want


@pytest.mark.parametrize("key", ["compute_capability", "cuda_driver_version", "numa_node"])
@pytest.mark.parametrize("operator", ["in", "not_in", "at_least", "exists"])
def test_what_is_unknown_matches_nothing(key: str, operator: str) -> None:
    selector = make_selector(key, operator, *([] if operator == "exists" else ["0"]))

    assert mismatch(selector, make_device(1), Node(node_id="alpha")) is UNKNOWN


def test_reason_names_the_unmatched_selector() -> None:
    request = GpuRequest(require=(make_selector("label:zone", "in", "b", "c"),))
    device = make_device(1)

    (code,) = blocks(device, request, NODE)
    message = reason_for(code, device, request, NODE).message

    assert message == "GPU 1 on alpha does not match label zone in b, c"


@pytest.mark.parametrize(
    ("changes", "node", "want"),
    [
        pytest.param({"mig_enabled": True}, {}, ReasonCode.MIG_ENABLED, id="divided by MIG"),
        pytest.param({"foreign_pids": (7,)}, {}, ReasonCode.FOREIGN_PROCESS, id="squatted"),
        pytest.param({"unlisted_mb": 900}, {}, ReasonCode.PROCESSES_UNKNOWN, id="use unlisted"),
        pytest.param({}, {"lost": True}, ReasonCode.NODE_LOST, id="on a lost node"),
        pytest.param({}, {"admitted": False}, ReasonCode.NOT_ADMITTED, id="on a new node"),
    ],
)
def test_what_no_request_gets(
    changes: dict[str, Any], node: dict[str, Any], want: ReasonCode
) -> None:
    device = make_device(1, **changes)

    assert list(blocks(device, GpuRequest(), Node(node_id="alpha", **node))) == [want]


@pytest.mark.parametrize(
    ("wishes", "want"),
    [
        ({"mig_profile": "1g.10gb"}, []),
        ({"device_uuids": ("GPU-1",)}, []),
        ({"mig_profile": "2g.20gb"}, [ReasonCode.MIG_PROFILE_MISMATCH]),
        ({}, [ReasonCode.MIG_PROFILE_MISMATCH]),
        ({"shares": 0.5}, [ReasonCode.NOT_DIVISIBLE]),
    ],
)
def test_mig_instance_serves_its_profile_or_name(
    wishes: dict[str, Any], want: list[ReasonCode]
) -> None:
    device = make_device(1, mig_enabled=True, parent_uuid="GPU-0", mig_profile="1g.10gb")

    assert list(blocks(device, GpuRequest(**wishes), NODE)) == want
    assert state_of(device, NODE) is DeviceState.FREE, "and is free to those"


@pytest.mark.parametrize("is_divided", [False, True])
def test_whole_gpu_serves_no_instance_request(is_divided: bool) -> None:
    device = make_device(1, mig_enabled=is_divided)
    code = ReasonCode.MIG_ENABLED if is_divided else ReasonCode.MIG_PROFILE_MISMATCH

    assert list(blocks(device, GpuRequest(mig_profile="1g.10gb"), NODE)) == [code]


@pytest.mark.parametrize(
    ("text", "want"),
    [("12.4", (12, 4)), ("12.10", (12, 10)), ("12.0", (12,)), ("v12", None), ("", None)],
)
def test_a_version_is_compared_number_by_number(text: str, want: tuple[int, ...] | None) -> None:
    assert version(text) == want


@pytest.mark.parametrize(
    ("selectors", "node"),
    [
        ((("node", "in", "beta"),), "beta"),
        ((("node", "not_in", "alpha"),), "beta"),
        ((("node", "in", "alpha", "beta"), ("node", "not_in", "beta")), "alpha"),
        ((("gpu_uuid", "not_in", "GPU-1"),), "beta"),
        ((("gpu_uuid", "in", "GPU-1", "GPU-2"), ("gpu_uuid", "in", "GPU-2")), "beta"),
        ((("node", "in", "alpha"), ("node", "in", "beta")), None),
    ],
)
def test_request_is_placed_where_selectors_match(
    selectors: tuple[tuple[str, ...], ...], node: str | None
) -> None:
    engine = make_engine(make_device(1, node_id="alpha"), make_device(2, node_id="beta"))
    queue(engine, 1, GpuRequest(require=tuple(make_selector(*each) for each in selectors)))

    placed = [each.placed.node_id for each in engine.decide(NOW) if isinstance(each, Grant)]

    assert placed == ([node] if node is not None else [])
