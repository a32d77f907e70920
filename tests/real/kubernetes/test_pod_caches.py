"""What engines in pods compile, on a real control plane: who finds it, and who is refused it."""

from pathlib import Path

import pytest

from schemas.executor.attempts import FailureKind, Runtime, StartExperiment
from schemas.gpus.device_grant import ClusterPlacement
from services.executor.domain.verdict import AttemptFailed
from services.executor.journal.journal import Journal
from services.executor.runtimes.runtime import EngineRuntime
from services.executor.settings import ExecutorSettings
from tests.support.kubernetes.api import Api, Object
from tests.support.kubernetes.caches import CLAIM, bound_claim, mounted
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import pod_engines
from tests.support.kubernetes.nodes import make_device_plugin_nodes
from tests.support.worlds.cluster_executor import ClusterRuntimes, cluster_settings, cluster_start
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import FAST, launch_of

READY_SECONDS = 60.0
NEW, KNOWN = "compiling (simulated)", "compiled before (simulated)"
COMPILES = {**FAST, "start-compile-seconds": 0.05}
HOST_PATH = "hostPath:/var/lib/compiled"


def start_on(node: str, namespace: str = "a") -> StartExperiment:
    place = ClusterPlacement(cluster_id=NODE, gpus=1, node_name=node, hostname=node)
    return cluster_start(parameters=COMPILES, place=place, namespace=namespace)


def strict(name: str) -> Object:
    """A namespace; one that was deleted may still be going when the next test begins."""
    metadata = {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


class Starts:
    """One engine after another, and what each says of what was compiled before it."""

    def __init__(
        self, plane: ControlPlane, runtime: EngineRuntime, settings: ExecutorSettings
    ) -> None:
        self.plane, self.runtime, self.settings = plane, runtime, settings

    async def said(self, command: StartExperiment) -> str:
        before = len(self._lines())
        engine = await self.runtime.start(launch_of(command, self.settings))
        await engine.until_ready(READY_SECONDS)
        await engine.stop(1.0)
        return next(each for each in self._lines()[before:] if each in {NEW, KNOWN})

    async def given_up(self, command: StartExperiment) -> None:
        """Stopped before it was found ready."""
        engine = await self.runtime.start(launch_of(command, self.settings))
        await engine.stop(0.0)

    def _lines(self) -> list[str]:
        if not self.plane.pod_log.exists():
            return []
        return [each.partition(" F ")[2] for each in self.plane.pod_log.read_text().splitlines()]


@pytest.mark.long
async def test_second_start_reuses_cache_of_node_and_namespace(
    empty_cluster: ControlPlane,
    api: Api,
    runtimes: ClusterRuntimes,
    journal: Journal,
    tmp_path: Path,
) -> None:
    await make_device_plugin_nodes(api, ["node-0", "node-1"])
    settings = cluster_settings(empty_cluster, tmp_path, cluster_compile_cache=HOST_PATH)
    starts = Starts(empty_cluster, runtimes.make(Runtime.KUBERNETES, settings, journal), settings)

    async with pod_engines(empty_cluster, tmp_path / "disks"):
        said = [
            await starts.said(start_on("node-0")),
            await starts.said(start_on("node-0")),
            await starts.said(start_on("node-0", namespace="b")),
            await starts.said(start_on("node-1")),
        ]
        await starts.given_up(start_on("node-0"))
        after_one_that_was_not_ready = await starts.said(start_on("node-0"))

    assert said == [NEW, KNOWN, NEW, NEW]
    assert after_one_that_was_not_ready == NEW
    below = tmp_path / "disks/node-0/var/lib/compiled"
    assert sorted(each.name for each in below.iterdir()) == ["a", "b"]


@pytest.mark.long
async def test_concurrent_engines_have_own_cache_directories(
    empty_cluster: ControlPlane,
    api: Api,
    runtimes: ClusterRuntimes,
    journal: Journal,
    tmp_path: Path,
) -> None:
    await make_device_plugin_nodes(api, ["node-0"])
    await api.create_all(bound_claim("default"))
    settings = cluster_settings(empty_cluster, tmp_path, cluster_compile_cache=CLAIM)
    runtime = runtimes.make(Runtime.KUBERNETES, settings, journal)

    async with pod_engines(empty_cluster, tmp_path / "disks"):
        commands = [start_on("node-0"), start_on("node-0")]
        engines = [await runtime.start(launch_of(each, settings)) for each in commands]
        for engine in engines:
            await engine.until_ready(READY_SECONDS)
        together = await mounted(api, "default")
        for engine in engines:
            await engine.stop(1.0)
        third = await runtime.start(launch_of(start_on("node-0"), settings))
        await third.until_ready(READY_SECONDS)
        [alone] = await mounted(api, "default")
        await third.stop(1.0)

    names = [each.attempt_id.hex for each in commands]
    assert sorted(each.rpartition("/")[2] for each in together) == sorted(names)
    assert len({each.rpartition("/")[0] for each in together}) == 1
    assert alone.rpartition("/")[2] == names[-1]


async def test_host_path_cache_refused_by_security_has_hint(
    empty_cluster: ControlPlane,
    api: Api,
    runtimes: ClusterRuntimes,
    journal: Journal,
    tmp_path: Path,
) -> None:
    await api.create(strict("refuses"))
    await make_device_plugin_nodes(api, ["node-0"])
    settings = cluster_settings(
        empty_cluster, tmp_path, cluster_compile_cache=HOST_PATH, cluster_namespace="refuses"
    )
    runtime = runtimes.make(Runtime.KUBERNETES, settings, journal)

    engine = await runtime.start(launch_of(start_on("node-0"), settings))
    with pytest.raises(AttemptFailed) as failed:
        await engine.until_ready(READY_SECONDS)
    await engine.stop(0.0)

    failure = failed.value.failure
    assert failure.kind is FailureKind.RUNTIME_UNAVAILABLE
    assert 'violates PodSecurity "baseline' in failure.message
    assert 'hostPath volumes (volume "compiled")' in failure.message
    assert "GPUSTEWARD_EXECUTOR_CLUSTER_COMPILE_CACHE" in (failure.hint or "")
    assert await runtime.workloads() == ()


@pytest.mark.long
@pytest.mark.parametrize("has_claim", [True, False])
async def test_claim_cache_passes_security_or_is_skipped(
    empty_cluster: ControlPlane,
    api: Api,
    runtimes: ClusterRuntimes,
    journal: Journal,
    tmp_path: Path,
    has_claim: bool,
) -> None:
    namespace = "with-claim" if has_claim else "without-claim"
    await api.create(strict(namespace))
    await make_device_plugin_nodes(api, ["node-0"])
    if has_claim:
        await api.create_all(bound_claim(namespace))
    settings = cluster_settings(
        empty_cluster, tmp_path, cluster_compile_cache=CLAIM, cluster_namespace=namespace
    )
    runtime = runtimes.make(Runtime.KUBERNETES, settings, journal)
    command = start_on("node-0")

    async with pod_engines(empty_cluster, tmp_path / "disks"):
        engine = await runtime.start(launch_of(command, settings))
        await engine.until_ready(READY_SECONDS)
        directories = await mounted(api, namespace)
        await engine.stop(1.0)

    assert [each.rpartition("/")[2] for each in directories] == (
        [command.attempt_id.hex] if has_claim else []
    )
