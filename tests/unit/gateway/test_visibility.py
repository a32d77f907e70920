"""What a token sees of GPUs, holders and drift that are not of its namespaces."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.gateway.tokens import Role
from schemas.gateway.views import GpuMetrics, GpuPodView, GpuProcessView, GpuView
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.drifts import DriftAction, DriftKind
from schemas.scheduler.namespaces import ANOTHER_NAMESPACE
from schemas.scheduler.views import DeviceAllocation, DeviceHolder, Drift, NodeAllocation
from schemas.telemetry.monitoring import GpuDetail
from schemas.telemetry.readings import (
    DeviceFacts,
    GpuPod,
    GpuProcess,
    GpuReading,
    HealthState,
    Source,
)
from services.gateway.domain.access import FULL_ACCESS, Identity
from services.gateway.domain.visibility import (
    NOBODYS,
    visible_allocation,
    visible_detail,
    visible_drift,
    visible_gpu,
    visible_metrics,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OURS, THEIRS = UUID(int=1), UUID(int=2)
OWN = GpuProcessView(pid=10, name="vllm", memory_used_mb=4, reservation_id=OURS)
FOREIGN = GpuProcessView(
    pid=11, name="sglang", memory_used_mb=5, container_id="c", reservation_id=THEIRS, pod_uid="p"
)
UNLABELLED = GpuProcessView(pid=12, name="python", memory_used_mb=6)
POD = GpuPodView(namespace="blue", pod="chat-0", container="engine")


def submitter(*namespaces: str) -> Identity:
    return Identity(role=Role.SUBMITTER, namespace=namespaces[0], further_namespaces=namespaces[1:])


RED = submitter("red")


def holder(reservation_id: UUID, namespace: str, shares: float = 0.4) -> DeviceHolder:
    return DeviceHolder(
        reservation_id=reservation_id, shares=shares, namespace=namespace, holder=f"{namespace} job"
    )


def gpu(**fields: Any) -> GpuView:
    return GpuView(
        node_id="a",
        uuid="GPU-0",
        index=0,
        name="A100",
        source=Source.NVML,
        simulated=False,
        utilization_percent=50.0,
        **fields,
    )


def allocation(**fields: Any) -> DeviceAllocation:
    return DeviceAllocation(
        node_id="a",
        uuid="GPU-0",
        index=0,
        name="A100",
        health=HealthState.OK,
        simulated=False,
        **fields,
    )


def held_by(reservation_id: UUID, namespace: str, **fields: Any) -> GpuView:
    return gpu(
        reservation_id=reservation_id,
        namespace=namespace,
        holder=f"{namespace} job",
        holders=(holder(reservation_id, namespace),),
        processes=(OWN, FOREIGN, UNLABELLED),
        pods=(POD,),
        **fields,
    )


def test_an_admin_sees_all_as_it_is() -> None:
    seen = held_by(THEIRS, "blue")

    assert visible_gpu(seen, FULL_ACCESS) is seen


def test_open_visibility_names_holders_not_processes() -> None:
    told = replace(RED, sees_all_holders=True)
    device = allocation(
        state=DeviceState.HELD,
        allocated=0.4,
        reservation_id=THEIRS,
        namespace="blue",
        holder="blue job",
        holders=(holder(THEIRS, "blue"),),
    )
    node = NodeAllocation(node_id="a", source=Source.NVML, fresh=True, devices=(device,))

    seen = visible_gpu(held_by(THEIRS, "blue"), told)

    assert (seen.reservation_id, seen.namespace, seen.holder) == (THEIRS, "blue", "blue job")
    assert seen.holders == (holder(THEIRS, "blue"),)
    assert [each.name for each in seen.processes or ()] == [None, None, None]
    assert seen.pods is None
    assert visible_allocation(node, told) == node


def test_holder_sees_only_own_processes() -> None:
    seen = visible_gpu(held_by(OURS, "red"), RED)

    assert (seen.reservation_id, seen.namespace, seen.holder) == (OURS, "red", "red job")
    assert seen.processes == (
        OWN,
        GpuProcessView(pid=11, memory_used_mb=5),
        GpuProcessView(pid=12, memory_used_mb=6),
    )
    assert seen.pods == (POD,)


def test_foreign_gpu_shows_only_held_and_count() -> None:
    seen = visible_gpu(held_by(THEIRS, "blue"), RED)

    assert (seen.reservation_id, seen.namespace) == (None, None)
    assert seen.holder == ANOTHER_NAMESPACE
    assert seen.holders == (
        DeviceHolder(reservation_id=NOBODYS, shares=0.4, holder=ANOTHER_NAMESPACE),
    )
    assert [each.name for each in seen.processes or ()] == [None, None, None]
    assert [each.memory_used_mb for each in seen.processes or ()] == [4, 5, 6]
    assert seen.pods is None
    assert seen.utilization_percent == 50.0


def test_share_holder_sees_own_share() -> None:
    shared = gpu(
        reservation_id=THEIRS,
        namespace="blue",
        holder="blue job",
        holders=(holder(THEIRS, "blue"), holder(OURS, "red")),
        processes=(OWN, FOREIGN),
        pods=(POD,),
    )

    seen = visible_gpu(shared, RED)

    assert seen.holder == ANOTHER_NAMESPACE
    assert [each.reservation_id for each in seen.holders] == [NOBODYS, OURS]
    assert seen.processes == (OWN, GpuProcessView(pid=11, memory_used_mb=5))
    assert seen.pods == (POD,)


def test_further_namespaces_of_token_are_own() -> None:
    seen = visible_gpu(held_by(THEIRS, "blue"), submitter("red", "blue"))

    assert seen.holder == "blue job"
    assert seen.processes is not None
    assert FOREIGN in seen.processes


def test_free_gpu_hides_unscheduled_users() -> None:
    seen = visible_gpu(gpu(state=DeviceState.FREE, processes=(UNLABELLED,), pods=(POD,)), RED)

    assert (seen.holder, seen.pods) == (None, None)
    assert seen.processes == (GpuProcessView(pid=12, memory_used_mb=6),)


def test_unknown_processes_stay_unknown() -> None:
    assert visible_gpu(gpu(processes=None), RED).processes is None


def test_live_readings_are_seen_as_the_list_is() -> None:
    live = GpuMetrics(
        node_id="a", sequence=1, observed_at=NOW, simulated=False, gpus=(held_by(THEIRS, "blue"),)
    )

    assert visible_metrics(live, FULL_ACCESS) is live
    assert visible_metrics(live, RED).gpus == (visible_gpu(live.gpus[0], RED),)


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [("red", (OURS, "red", "red job")), ("blue", (None, None, ANOTHER_NAMESPACE))],
)
def test_the_map_names_only_own_holders(
    namespace: str, expected: tuple[UUID | None, str | None, str]
) -> None:
    device = allocation(
        state=DeviceState.HELD,
        allocated=0.4,
        reservation_id=OURS,
        namespace=namespace,
        holder=f"{namespace} job",
        holders=(holder(OURS, namespace),),
    )
    node = NodeAllocation(node_id="a", source=Source.NVML, fresh=True, devices=(device,))

    (seen,) = visible_allocation(node, RED).devices

    assert visible_allocation(node, FULL_ACCESS) is node
    assert (seen.reservation_id, seen.namespace, seen.holder) == expected
    assert [(each.shares, each.holder) for each in seen.holders] == [(0.4, expected[2])]


def test_a_free_device_of_the_map_has_no_holder() -> None:
    free = allocation(state=DeviceState.FREE, allocated=0.0)
    node = NodeAllocation(node_id="a", source=Source.NVML, fresh=True, devices=(free,))

    assert visible_allocation(node, RED).devices == (free,)


def test_node_answer_names_processes_to_admins() -> None:
    reading = GpuReading(
        uuid="GPU-0",
        index=0,
        processes=(GpuProcess(pid=10, name="vllm", memory_used_mb=4, reservation_id=OURS),),
        pods=(GpuPod(namespace="blue", pod="chat-0", container="engine"),),
    )
    detail = GpuDetail(
        node_id="a",
        observed_at=NOW,
        facts=DeviceFacts(uuid="GPU-0", index=0, name="A100"),
        reading=reading,
    )

    seen = visible_detail(detail, RED).reading

    assert visible_detail(detail, FULL_ACCESS) is detail
    assert seen is not None
    assert seen.processes == (GpuProcess(pid=10, memory_used_mb=4),)
    assert seen.pods is None


def test_a_drift_s_sentence_is_for_admins() -> None:
    drift = Drift(
        drift_id=UUID(int=9),
        drift=DriftKind.SQUATTER,
        node_id="a",
        since_at=NOW,
        age_seconds=1.0,
        action=DriftAction.AVOID,
        detail="python of pid 7",
        device_uuid="GPU-0",
        reservation_id=THEIRS,
        pids=(7,),
    )

    seen = visible_drift(drift, RED)

    assert visible_drift(drift, FULL_ACCESS) is drift
    assert (seen.detail, seen.reservation_id, seen.pids) == ("", None, ())
    assert (seen.drift, seen.device_uuid) == (DriftKind.SQUATTER, "GPU-0")
