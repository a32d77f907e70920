"""An executor of a cluster as a service: attempts to their end, and what its death leaves."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.cluster.kubernetes import KubernetesSpec
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.executor.attempts import (
    AttemptOutcome,
    AttemptPhase,
    AttemptPhaseChanged,
    FailureKind,
    Runtime,
    StartExperiment,
)
from schemas.gpus.device_grant import ClusterPlacement
from schemas.task.benchmark import BenchmarkSpec
from services.executor.settings import ExecutorSettings
from shared.testing import eventually
from tests.support.kubernetes.api import Api, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import PodEngines, pod_engines
from tests.support.kubernetes.nodes import make_device_plugin_nodes
from tests.support.worlds.cluster_executor import cluster_settings, cluster_start
from tests.support.worlds.executor import (
    ENDLESS,
    NODE,
    Scheduler,
    executor_process,
    make_device,
    make_fence,
    scheduling,
    until_answering,
)

pytestmark = pytest.mark.long

ENDLESS_LOAD = BenchmarkSpec(
    traffic_scenarios=("D(8,64)",),
    num_concurrency=(2,),
    max_requests_per_level=100_000,
    max_time_per_level_seconds=600,
    warmup_requests=0,
)


@pytest.fixture
async def engines(empty_cluster: ControlPlane, api: Api) -> AsyncIterator[PodEngines]:
    await make_device_plugin_nodes(api, ["node-0"])
    async with pod_engines(empty_cluster) as running:
        yield running


@pytest.fixture
def settings(empty_cluster: ControlPlane, nats_url: str, tmp_path: Path) -> ExecutorSettings:
    return cluster_settings(
        empty_cluster, tmp_path, nats_url=nats_url, readiness_timeout_seconds=60.0
    )


def endless(**overrides: Any) -> StartExperiment:
    return cluster_start(
        parameters=ENDLESS, benchmark=ENDLESS_LOAD, timeout_seconds=600.0, **overrides
    )


async def left(api: Api) -> list[str]:
    """Names of whatever carries a reservation."""
    found: list[str] = []
    for version, kind in (("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "Pod")):
        listed = await api.items(path_to(version, kind), labelSelector="gpusteward.reservation")
        found += [f"{kind} {each['metadata']['name']}" for each in listed]
    return found


async def has_no_secret(api: Api) -> bool:
    secrets = await api.items(path_to("v1", "Secret"), labelSelector="gpusteward.reservation")
    return not secrets


async def is_made(api: Api) -> bool:
    return bool(await left(api))


async def until_phase(scheduler: Scheduler, start: StartExperiment, phase: AttemptPhase) -> None:
    async def is_there() -> bool:
        return any(
            isinstance(fact, AttemptPhaseChanged) and fact.phase is phase
            for fact in await scheduler.facts(start)
        )

    await eventually(is_there, within_seconds=60, what=f"the phase {phase.value}")


async def test_cluster_attempt_is_measured_to_its_end(
    settings: ExecutorSettings, engines: PodEngines, api: Api
) -> None:
    start = cluster_start(place=ClusterPlacement(cluster_id=NODE, gpus=2))
    async with scheduling(settings) as scheduler:
        with executor_process(settings):
            await until_answering(scheduler)
            reply = await scheduler.ask(start)
            finished = await scheduler.finished(start, within_seconds=60)
            facts = await scheduler.facts(start)
            release = await scheduler.until_released(start)
            await eventually(lambda: bool(scheduler.reports), what="a report")

    assert reply == Accepted(command_id=start.command_id)
    assert finished.outcome is AttemptOutcome.SUCCEEDED
    assert finished.benchmark is not None
    assert finished.benchmark.over_tls
    assert finished.engine_simulated
    assert finished.pod is not None
    assert finished.pod.pod in engines.names
    assert (finished.pod.node_id, finished.pod.gpus) == ("node-0", 2)
    assert finished.image_digest is not None
    assert finished.image_digest.endswith(f"@sha256:{7:064}")
    assert any(isinstance(f, AttemptPhaseChanged) and f.pod == finished.pod for f in facts)
    assert release.stopped
    assert await left(api) == []
    offered = {each.runtime: each for each in scheduler.reports[0].runtimes}
    assert "simulated" in offered[Runtime.KUBERNETES].engines
    assert offered[Runtime.DOCKER].engines == ()
    assert offered[Runtime.DOCKER].missing == {
        "docker": "this executor runs engines of its cluster only"
    }


async def test_held_pod_is_progress_then_failure(
    settings: ExecutorSettings, engines: PodEngines, api: Api
) -> None:
    settings = msgspec.structs.replace(settings, readiness_timeout_seconds=8.0)
    start = cluster_start(place=ClusterPlacement(cluster_id=NODE, gpus=9))
    async with scheduling(settings) as scheduler:
        with executor_process(settings):
            await until_answering(scheduler)
            await scheduler.ask(start)
            finished = await scheduler.finished(start, within_seconds=60)

    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.UNSCHEDULABLE
    said = [each.message for each in scheduler.progress if each.phase is AttemptPhase.LOADING]
    assert any("Insufficient nvidia.com/gpu" in message for message in said)
    assert await left(api) == []


@pytest.mark.parametrize("moment", ["accepted", "made", "loading", "measuring", "ending"])
async def test_killed_executor_leaves_nothing_in_cluster(
    settings: ExecutorSettings, engines: PodEngines, api: Api, moment: str
) -> None:
    parameters = {**ENDLESS, "start-delay-seconds": 600} if moment == "loading" else ENDLESS
    start = msgspec.structs.replace(endless(), engine=cluster_start(parameters=parameters).engine)
    async with scheduling(settings) as scheduler:
        with executor_process(settings) as first:
            await until_answering(scheduler)
            await scheduler.ask(start)
            if moment == "made":
                await eventually(lambda: is_made(api), within_seconds=30, what="an object")
            elif moment == "loading":
                await until_phase(scheduler, start, AttemptPhase.LOADING)
            elif moment != "accepted":
                await until_phase(scheduler, start, AttemptPhase.MEASURING)
            if moment == "ending":
                fencing = asyncio.create_task(
                    scheduler.bus.request(make_fence(start.reservation_id))
                )
                await until_phase(scheduler, start, AttemptPhase.TEARING_DOWN)
                fencing.cancel()
            first.kill()
            first.wait()
        with executor_process(settings):
            finished = await scheduler.finished(start, within_seconds=60)
            release = await scheduler.until_released(start)
            there = await left(api)

    assert finished.failure is not None
    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert release.stopped
    assert there == []
    await eventually(lambda: not engines.pids(start.reservation_id), what="no engine")
    await eventually(lambda: has_no_secret(api), within_seconds=30, what="no key left")


async def test_fence_waits_until_pods_are_gone(
    settings: ExecutorSettings, engines: PodEngines, api: Api
) -> None:
    start = endless()
    async with scheduling(settings) as scheduler:
        with executor_process(settings):
            await until_answering(scheduler)
            await scheduler.ask(start)
            await until_phase(scheduler, start, AttemptPhase.MEASURING)
            workloads = (await scheduler.running()).workloads

            async def is_fenced() -> bool:
                answer = await scheduler.bus.request(make_fence(start.reservation_id))
                assert isinstance(answer, Accepted) or answer.code is ErrorCode.STILL_RUNNING
                if isinstance(answer, Accepted):
                    assert await left(api) == []
                return isinstance(answer, Accepted)

            await eventually(is_fenced, within_seconds=30, what="a fenced reservation")
            late = await scheduler.ask(
                msgspec.structs.replace(start, attempt_id=start.task_id, command_id=start.task_id)
            )

    assert workloads is not None
    assert [each.reservation_id for each in workloads] == [start.reservation_id]
    assert isinstance(late, Refused)
    assert late.code is ErrorCode.LEASE_LOST


async def test_invalid_cluster_place_is_refused_by_field(
    settings: ExecutorSettings,
) -> None:
    settings = msgspec.structs.replace(settings, cluster_namespaces="shared,team-a:quotas")
    elsewhere = ClusterPlacement(cluster_id="other", gpus=1)
    wanted = {
        "$.cluster": msgspec.structs.replace(cluster_start(), cluster=None),
        "$.cluster.cluster_id": cluster_start(place=elsewhere),
        "$.devices": msgspec.structs.replace(cluster_start(), devices=(make_device(),)),
        "$.model.namespace": cluster_start(names=KubernetesSpec(namespace="kube-system")),
        "$.model.id_or_path": cluster_start(model="/etc/passwd"),
        "$.engine.runtime": msgspec.structs.replace(
            cluster_start(), engine=cluster_start(Runtime.DOCKER).engine, cluster=None
        ),
    }
    others = cluster_start(names=KubernetesSpec(namespace="quotas"), namespace="team-b")
    async with scheduling(settings) as scheduler:
        with executor_process(settings):
            await until_answering(scheduler)
            answers = {path: await scheduler.ask(start) for path, start in wanted.items()}
            of_others = await scheduler.ask(others)

    for path, answer in answers.items():
        assert isinstance(answer, Refused)
        assert answer.path == path
    assert isinstance(of_others, Refused)
    assert of_others.path == "$.model.namespace"
