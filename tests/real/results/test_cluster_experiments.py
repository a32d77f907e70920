"""Experiments of a cluster: samples joined to the GPUs that their pod had, or why they are not."""

import statistics
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from schemas.cluster.kubernetes import EnginePod
from schemas.executor.attempts import AttemptPhase, AttemptPhaseChanged, EngineSpec, Runtime
from schemas.telemetry.readings import GpuPod, GpuProcess, GpuSampled, SetBurst
from shared.clock import utcnow
from shared.ids import new_id
from tests.support.worlds.results import NODE, World, make_finished, make_sample

POD = EnginePod(node_id=NODE, namespace="engines", pod="e-1-x", container="ome-container", gpus=2)
OWN = GpuPod(POD.namespace, POD.pod, POD.container)
OTHER = GpuPod("elsewhere", "e-1-x", "ome-container")
SECONDS = 40
Pods = tuple[GpuPod, ...] | None


def in_cluster(start: datetime, **overrides: Any) -> Any:
    """Measured from second 10 to 30 of an attempt that lasted from 2 to 35."""

    def at(seconds: float) -> datetime:
        return start + timedelta(seconds=seconds)

    fields = {
        "executor_id": "prod",
        "devices": (),
        "pod": POD,
        "engine": EngineSpec(runtime=Runtime.OME, engine="sglang", model="m"),
        "started_at": at(2),
        "finished_at": at(35),
    }
    return make_finished([(at(10.5), at(30.5))], **{**fields, **overrides})


def samples(start: datetime, pods: Sequence[Sequence[Pods]], event: Any) -> list[GpuSampled]:
    """`pods` by GPU and second; every reading differs from every other."""
    made = []
    for second in range(SECONDS):
        plain = make_sample(start + timedelta(seconds=second), second, gpus=len(pods))
        processes = (
            GpuProcess(pid=1, reservation_id=event.reservation_id),
            *([GpuProcess(pid=2, name="someone")] if 12 <= second < 15 else []),
        )
        gpus = tuple(
            replace(
                gpu,
                pods=told[second],
                utilization_percent=float((7 * second + 31 * gpu.index) % 101),
                power_draw_w=200.0 + second + 100 * gpu.index,
                processes=processes,
            )
            for gpu, told in zip(plain.gpus, pods, strict=True)
        )
        made.append(replace(plain, gpus=gpus))
    return made


async def test_pod_gpus_are_joined_despite_failures(world: World) -> None:
    start = utcnow() - timedelta(seconds=SECONDS)
    event = in_cluster(start)
    # Kubelet tells of the second device late, and is away for a while; the first is another's.
    early, away = range(8), range(14, 20)

    def told(pods: Pods, *, is_late: bool = False) -> list[Pods]:
        own = [() if is_late and s in early else pods for s in range(SECONDS)]
        return [None if s in away else each for s, each in enumerate(own)]

    made = samples(start, [told((OTHER,)), told((OWN,)), told((OWN,), is_late=True)], event)
    async with world.results():
        await world.publish(*made[:20], event)
        await world.stored(60)
    async with world.results():  # started anew
        await world.publish(*made[10:], event)  # and some of it came again
        view = await world.complete(event, ticks=20)

    seen = view.gpu_monitoring
    assert (seen.trusted, seen.untrusted_because) == (True, "")
    assert [device.uuid for device in seen.devices] == ["GPU-1", "GPU-2"]
    assert {device.node_id for device in seen.devices} == {NODE}
    assert sorted(seen.gpu_stats) == ["1", "2"]
    for index, stats in seen.gpu_stats.items():
        used = [(7 * s + 31 * int(index)) % 101 for s in range(11, 31)]
        power = [200.0 + s + 100 * int(index) for s in range(11, 31)]
        assert stats.utilization.samples == 20
        assert (stats.utilization.min, stats.utilization.max) == (min(used), max(used))
        assert stats.utilization.mean == pytest.approx(statistics.fmean(used))
        assert stats.power_draw_w.mean == pytest.approx(statistics.fmean(power))
    [tenant] = seen.gpu_details["1"].co_tenants
    assert tenant.name == "someone"
    assert tenant.seconds == pytest.approx(3.0)


async def test_pods_of_all_ranks_are_joined_on_their_nodes(world: World) -> None:
    start = utcnow() - timedelta(seconds=SECONDS)
    other = replace(POD, node_id="n2", pod="e-1-1", rank=1)
    event = in_cluster(start, other_pods=(other,))
    of_other = GpuPod(other.namespace, other.pod, other.container)
    boot_id = new_id()

    first = samples(start, [[(OWN,)] * SECONDS, [(OWN,)] * SECONDS], event)
    second = [
        replace(
            sample,
            node_id="n2",
            boot_id=boot_id,
            gpus=tuple(replace(gpu, uuid=f"{gpu.uuid}-n2") for gpu in sample.gpus),
        )
        for sample in samples(start, [[()] * SECONDS, *([[(of_other,)] * SECONDS] * 2)], event)
    ]
    async with world.results():
        await world.publish(*first, *second, event)
        view = await world.complete(event, ticks=20)

    seen = view.gpu_monitoring
    assert (seen.trusted, seen.untrusted_because) == (True, "")
    assert set(seen.gpu_stats) == {f"{NODE}/0", f"{NODE}/1", "n2/1", "n2/2"}
    assert all(stats.utilization.samples == 20 for stats in seen.gpu_stats.values())


async def test_node_without_agent_has_reason_no_figures(
    world: World,
) -> None:
    finished = in_cluster(utcnow() - timedelta(seconds=SECONDS))
    same = ("experiment_id", "attempt_id", "attempt_number", "task_id", "executor_id")
    phase = AttemptPhaseChanged(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=1,
        phase=AttemptPhase.MEASURING,
        pod=POD,
        **{name: getattr(finished, name) for name in (*same, "reservation_id", "epoch")},
    )
    subscription = await world.client.subscribe(f"gpusteward.cmd.telemetry.burst.{NODE}")
    async with world.results(summary_grace_seconds=0.5, burst_seconds=30.0):
        await world.publish(phase, finished)
        asked = await subscription.next_msg(timeout=30)
        view = await world.summarized(finished)

    assert msgspec.msgpack.decode(asked.data, type=SetBurst).node_id == NODE
    seen = view.gpu_monitoring
    assert (seen.trusted, seen.gpu_stats, seen.devices, seen.energy_wh) == (False, {}, (), None)
    assert seen.untrusted_because == f"no telemetry agent reported from node {NODE}"
    assert view.metrics.mean_ttft == 0.25
