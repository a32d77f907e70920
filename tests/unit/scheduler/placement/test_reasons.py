"""Sentences and codes: gangs, hosts, what is kept for others, and answers that stay small."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from schemas.gpus.gpu_request import GpuRequest, Selector, SelectorKey
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import ReservationState
from services.scheduler.domain.model.fleet import Device, Fleet, Host, HostResources, Node
from services.scheduler.domain.placement.placement import PlacementContext
from services.scheduler.domain.placement.reasons import (
    MAX_MESSAGE,
    MAX_REASONS,
    REASONS_PER_CODE,
    abridge,
    availability_sentence,
    blocking_reasons,
    impossible_reasons,
    summary_sentence,
)
from tests.unit.scheduler.builders import make_device

HELD = UUID(int=9)


def fleet_of(*devices: Device, **hosts: Host) -> Fleet:
    return msgspec.structs.replace(Fleet.of(devices), hosts=hosts)


def host(node_id: str, cpus: float | None = 8, held: float = 0, **changes: Any) -> Host:
    return Host(
        node=Node(node_id=node_id, cpu_count=cpus, **changes),
        held_resources=HostResources(cpu_count=held),
    )


def codes(reasons: tuple[Reason, ...]) -> set[tuple[ReasonCode, str | None]]:
    return {(reason.code, reason.device_uuid or reason.node_id) for reason in reasons}


def test_all_reasons_of_devices_and_nodes_are_told() -> None:
    fleet = fleet_of(
        make_device(1, holder=HELD, cordoned=True, foreign_pids=(7, 8)),
        make_device(2, used=None, free_mb=None),
        make_device(3, node_id="beta", used=90.0, free_mb=100),
        alpha=host("alpha", 8, held=6),
        beta=host("beta", None),
    )

    reasons = blocking_reasons(PlacementContext(fleet=fleet), GpuRequest(gpus=1, cpu_count=4))

    assert codes(reasons) == {
        (ReasonCode.HELD, "GPU-1"),
        (ReasonCode.CORDONED, "GPU-1"),
        (ReasonCode.FOREIGN_PROCESS, "GPU-1"),
        (ReasonCode.UTILIZATION_UNKNOWN, "GPU-2"),
        (ReasonCode.MEMORY_UNKNOWN, "GPU-2"),
        (ReasonCode.TOO_FEW_DEVICES, "alpha"),
        (ReasonCode.INSUFFICIENT_CPU, "alpha"),
        (ReasonCode.UTILIZATION_ABOVE_LIMIT, "GPU-3"),
        (ReasonCode.INSUFFICIENT_FREE_MEMORY, "GPU-3"),
        (ReasonCode.TOO_FEW_DEVICES, "beta"),
        (ReasonCode.INSUFFICIENT_CPU, "beta"),
    }
    texts = {reason.code: reason.message for reason in reasons}
    assert "7, 8" in texts[ReasonCode.FOREIGN_PROCESS]
    assert texts[ReasonCode.INSUFFICIENT_CPU] == "beta reports no CPUs, 4 are needed"


def test_gpus_of_two_models_are_no_group() -> None:
    fleet = fleet_of(
        *(make_device(n, name="NVIDIA H100") for n in (1, 2)),
        *(make_device(n, name="NVIDIA A100", memory_total_mb=40_960) for n in (3, 4)),
    )
    context = PlacementContext(fleet=fleet)

    now, ever = (
        blocking_reasons(context, GpuRequest(gpus=4)),
        impossible_reasons(fleet, GpuRequest(gpus=4)),
    )

    assert [reason.code for reason in now] == [ReasonCode.MIXED_MODELS]
    assert now[0].message == (
        "alpha has 2 NVIDIA A100 (40 GiB), 2 NVIDIA H100 (80 GiB), and 4 GPUs are to be of one"
        " model and memory size"
    )
    assert [reason.code for reason in ever] == [ReasonCode.MIXED_MODELS]
    assert ever[0].message.endswith("and no node will ever have that")
    assert blocking_reasons(context, GpuRequest(gpus=4, mixed_models=True)) == ()
    assert impossible_reasons(fleet, GpuRequest(gpus=4, mixed_models=True)) == ()


def test_gang_of_two_models_tells_its_nodes_differ() -> None:
    fleet = fleet_of(
        make_device(1, name="NVIDIA H100"), make_device(2, node_id="beta", name="NVIDIA A100")
    )

    found = blocking_reasons(PlacementContext(fleet=fleet), GpuRequest(nodes=2))

    assert [reason.code for reason in found] == [ReasonCode.MIXED_MODELS]
    assert "1 node with the same can be had now" in found[0].message


def test_reserved_devices_tell_for_whom_and_how() -> None:
    context = PlacementContext(
        fleet=fleet_of(make_device(1), make_device(2)),
        optimistic={1: UUID(int=1)},
        promised={2: UUID(int=2)},
    )

    reasons = blocking_reasons(context, GpuRequest())

    assert codes(reasons) == {
        (ReasonCode.BEHIND_IN_QUEUE, "GPU-1"),
        (ReasonCode.KEPT_FOR_EARLIER, "GPU-2"),
        (ReasonCode.TOO_FEW_DEVICES, "alpha"),
    }
    assert str(UUID(int=1)) in reasons[0].message
    assert str(UUID(int=2)) in reasons[1].message


def test_a_gang_is_told_how_many_nodes_it_could_have() -> None:
    context = PlacementContext(
        fleet=fleet_of(make_device(1), make_device(2, node_id="beta", holder=HELD))
    )

    reasons = blocking_reasons(context, GpuRequest(nodes=2))

    assert codes(reasons) == {
        (ReasonCode.HELD, "GPU-2"),
        (ReasonCode.TOO_FEW_DEVICES, "beta"),
        (ReasonCode.TOO_FEW_NODES, None),
    }
    assert reasons[-1].message == "1 node of 2 asked for can be had together now"


def test_unbalanced_gang_is_told_so() -> None:
    context = PlacementContext(
        fleet=fleet_of(make_device(1, free_mb=80_000), make_device(2, node_id="b", free_mb=50_000))
    )

    reasons = blocking_reasons(context, GpuRequest(nodes=2, balanced_memory=True))

    assert codes(reasons) == {(ReasonCode.MEMORY_UNBALANCED, None)}


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(GpuRequest(gpus=2), ReasonCode.EXCEEDS_LARGEST_NODE, id="GPUs of one node"),
        pytest.param(GpuRequest(nodes=3), ReasonCode.TOO_FEW_NODES, id="nodes"),
        pytest.param(GpuRequest(cpu_count=9), ReasonCode.INSUFFICIENT_CPU, id="CPUs"),
        pytest.param(
            GpuRequest(host_memory_mb=1), ReasonCode.INSUFFICIENT_HOST_MEMORY, id="memory untold"
        ),
        pytest.param(
            GpuRequest(require=(Selector(key=SelectorKey.LABEL, label="zone", values=("x",)),)),
            ReasonCode.LABEL_MISMATCH,
            id="label",
        ),
    ],
)
def test_what_never_fits_is_known_beforehand(request_: GpuRequest, want: ReasonCode) -> None:
    fleet = fleet_of(
        make_device(1),
        make_device(2, node_id="beta", holder=HELD),
        alpha=host("alpha"),
        beta=host("beta", held=8, labels={"zone": "y"}),
    )

    assert want in {reason.code for reason in impossible_reasons(fleet, request_)}
    unsettled = msgspec.structs.replace(fleet, complete=False)
    assert impossible_reasons(unsettled, request_) == ()
    assert impossible_reasons(fleet, GpuRequest(nodes=2, cpu_count=8)) == ()


def test_answer_about_large_fleet_is_bounded() -> None:
    reasons = (
        *(
            Reason(
                code=ReasonCode.HELD, message="x" * 5_000, node_id="n" * 60, device_uuid="u" * 40
            )
            for _ in range(6_212)
        ),
        *(Reason(code=ReasonCode.TOO_FEW_DEVICES, message="few") for _ in range(1_213)),
        Reason(code=ReasonCode.CORDONED, message="the only one of its kind"),
    )

    shown = abridge(reasons)

    assert len(shown.reasons) == MAX_REASONS
    assert {reason.code for reason in shown.reasons} == {
        ReasonCode.HELD,
        ReasonCode.TOO_FEW_DEVICES,
        ReasonCode.CORDONED,
    }
    few = [reason for reason in shown.reasons if reason.code is ReasonCode.TOO_FEW_DEVICES]
    assert len(few) == REASONS_PER_CODE
    assert sum(shown.left_out.values()) == len(reasons) - MAX_REASONS
    assert ReasonCode.CORDONED not in shown.left_out
    assert max(len(reason.message) for reason in shown.reasons) == MAX_MESSAGE
    assert len(msgspec.msgpack.encode(shown)) < 512 * 1024


def test_a_small_answer_is_told_whole() -> None:
    reasons = tuple(Reason(code=ReasonCode.HELD, message=str(n)) for n in range(MAX_REASONS))

    assert abridge(reasons).reasons == reasons
    assert abridge(reasons).left_out == {}


def test_sentence_tells_request_and_blocked_count() -> None:
    gang = GpuRequest(gpus=8, nodes=4)
    held = tuple(Reason(code=ReasonCode.HELD, message=f"GPU {n} is held") for n in range(3))

    assert (
        summary_sentence(ReservationState.QUEUED, gang, held, 2, 5)
        == "queued at 2 of 5 for 8 GPUs on each of 4 nodes: 3 GPUs already held"
    )
    assert summary_sentence(ReservationState.ACTIVE, gang, (), None, 5) == "active"
    assert availability_sentence(GpuRequest(), (), ["a", "b"]) == "1 GPU available on a, b"
    many = [f"n{n}" for n in range(10)]
    assert availability_sentence(gang, (), many).endswith("n7 and 2 more nodes")
    assert availability_sentence(gang, (), many[:8]).endswith("n6, n7")
    assert availability_sentence(GpuRequest(), held[:1], ()) == "1 GPU not available: GPU 0 is held"
    assert availability_sentence(GpuRequest(gpus=2), held[1:], ()).endswith(
        ": GPU 1 is held; GPU 2 is held"
    )


def test_impossible_request_reads_as_its_rejection() -> None:
    fleet = fleet_of(make_device(1), make_device(2))
    request = GpuRequest(gpus=3, gpu_models=("A100",))

    reasons = impossible_reasons(fleet, request)

    assert availability_sentence(request, reasons, (), impossible=True) == (
        "3 GPUs can never fit on this fleet: 3 GPUs of one node asked for, no node has any that"
        " match: no GPU is A100, there are 2 NVIDIA H100 80GB HBM3"
    )


def test_what_the_request_itself_excludes_comes_last() -> None:
    near, far = (
        Reason(code=ReasonCode.NODE_MISMATCH, message=f"{node} is not asked for") for node in "ab"
    )
    held = Reason(code=ReasonCode.HELD, message="held")

    shown = abridge((near, far, held))

    assert shown.reasons == (held, near, far)
    assert availability_sentence(GpuRequest(), (near, far, held), ()).endswith(
        "1 GPU already held, 2 GPUs outside the nodes asked for"
    )
