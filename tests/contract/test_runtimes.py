"""What every runtime does, whichever it is: with the simulated engine, on this host."""

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp
import msgspec
import pytest

from schemas.errors import ErrorCode
from schemas.executor.attempts import FailureKind, Runtime, RuntimeOffer, StartExperiment
from services.executor.domain.admission import CLUSTER_RUNTIMES
from services.executor.domain.verdict import AttemptFailed
from services.executor.host.processes import stat_of
from services.executor.journal.journal import Journal
from services.executor.runtimes.docker.runtime import DockerRuntime
from services.executor.runtimes.process import ProcessRuntime
from services.executor.runtimes.runtime import EngineRuntime, RunningEngine, Workload
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError
from shared.testing import eventually
from shared.tls.contexts import trusting
from shared.waiting import cancel_and_wait
from tests.support.worlds.cluster_executor import (
    cluster_settings,
    cluster_start,
    runtimes_of_clusters,
)
from tests.support.worlds.runtime_launches import labels_of, launch_of, runtime_settings, start_of

if TYPE_CHECKING:
    from tests.support.kubernetes.control_plane import ControlPlane
    from tests.support.kubernetes.engines import PodEngines

READY_SECONDS = 20.0
IN_CLUSTER = [pytest.mark.long, pytest.mark.kubernetes]
NEVER: dict[str, Any] = {"start-delay-seconds": 600}


@dataclass(slots=True)
class Host:
    """One runtime, and as many more like it as a test wants."""

    settings: ExecutorSettings
    make: Callable[[ExecutorSettings], EngineRuntime]
    runtime: EngineRuntime
    pod_engines: "PodEngines | None" = None

    def start_of(
        self, parameters: dict[str, Any] | None = None, *, engine: str = "simulated", **rest: Any
    ) -> StartExperiment:
        if self.pod_engines is not None:
            return cluster_start(self.runtime.kind, parameters, engine=engine, **rest)
        return start_of(engine, parameters, runtime=self.runtime.kind, **rest)

    def pids(self, workload: Workload) -> Sequence[int]:
        """Processes of this host that it consists of."""
        if self.pod_engines is None:
            return workload.pids
        return self.pod_engines.pids(workload.labels.reservation_id)

    @asynccontextmanager
    async def running(
        self, command: StartExperiment, settings: ExecutorSettings | None = None
    ) -> AsyncIterator[RunningEngine]:
        """A started engine, ended again."""
        chosen = settings or self.settings
        engine = await self.make(chosen).start(launch_of(command, chosen))
        try:
            yield engine
        finally:
            await engine.stop(0.0)

    def session(self, command: StartExperiment) -> aiohttp.ClientSession:
        """Speak to its engine, trusting the certificate of the attempt where it has one."""
        certificate = launch_of(command, self.settings).certificate
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(certificate)))

    async def until_running(self, command: StartExperiment) -> Sequence[int]:
        """Its processes, once it has some: a pod is bound and started after its object is made."""
        found: list[int] = []

        async def runs() -> bool:
            workload = await self.workload(command)
            found[:] = self.pids(workload) if workload is not None else []
            return bool(found)

        await eventually(runs, what="processes of the engine")
        return found

    async def offer(self) -> RuntimeOffer:
        """With engines: a cluster that has not answered in time is asked again."""
        offers: list[RuntimeOffer] = []

        async def has_engines() -> bool:
            offers.append(await self.runtime.offer())
            return bool(offers[-1].engines)

        await eventually(has_engines, what="engines on offer")
        return offers[-1]

    async def workload(self, command: StartExperiment) -> Workload | None:
        """What runs under the reservation of the attempt."""
        found = [
            each
            for each in await self.runtime.workloads()
            if each.labels.reservation_id == command.reservation_id
        ]
        assert len(found) <= 1
        return found[0] if found else None


@pytest.fixture(
    params=[
        Runtime.PROCESS,
        pytest.param(Runtime.DOCKER, marks=pytest.mark.long),
        pytest.param(Runtime.KUBERNETES, marks=IN_CLUSTER),
        pytest.param(Runtime.OME, marks=IN_CLUSTER),
    ]
)
def kind(request: pytest.FixtureRequest) -> Runtime:
    chosen: Runtime = request.param
    return chosen


@pytest.fixture
def plane(kind: Runtime, request: pytest.FixtureRequest) -> "ControlPlane | None":
    """What a cluster's runtimes need, started outside of any event loop."""
    if kind not in CLUSTER_RUNTIMES:
        return None
    found: ControlPlane = request.getfixturevalue("control_plane")
    return found


@pytest.fixture
async def host(
    kind: Runtime, plane: "ControlPlane | None", request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Host]:
    if kind is Runtime.PROCESS:
        settings = runtime_settings(tmp_path)
        journal = await Journal(tmp_path / "journal.db").open()

        def process_runtime(settings: ExecutorSettings) -> EngineRuntime:
            return ProcessRuntime(settings, journal)

        yield Host(settings, process_runtime, process_runtime(settings))
        journal.close_nowait()
        return
    if plane is not None:
        async with cluster_host(kind, plane, tmp_path) as found:
            yield found
        gc.collect()  # what is left open is told here, not in a test that follows
        return
    docker_engine = request.getfixturevalue("docker_engine")
    from tests.support.docker.images import engine_image

    name, _, tag = engine_image(docker_engine.client).rpartition(":")
    engines = tmp_path / "engines.toml"
    engines.write_text(f'[engines.simulated]\nimage = "{name}"\ntag = "{tag}"\n')
    settings = runtime_settings(
        tmp_path, docker_host=docker_engine.base_url, engines_file=str(engines)
    )
    yield Host(settings, DockerRuntime, DockerRuntime(settings))


@asynccontextmanager
async def cluster_host(
    kind: Runtime, plane: "ControlPlane", directory: Path
) -> AsyncIterator[Host]:
    """Without OME's kinds it is skipped for OME."""
    from tests.support.kubernetes.engines import pod_engines
    from tests.support.kubernetes.nodes import make_device_plugin_nodes
    from tests.support.kubernetes.ome_stand_in import install_crds, missing_crds, ome_stand_in

    if kind is Runtime.OME and (reason := missing_crds()) is not None:
        pytest.skip(reason)
    await plane.wipe()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(plane.api())
        await make_device_plugin_nodes(api, ["node-0", "node-1"])
        if kind is Runtime.OME:
            await install_crds(api)
            await stack.enter_async_context(ome_stand_in(plane))
        engines = await stack.enter_async_context(pod_engines(plane))
        made = await stack.enter_async_context(runtimes_of_clusters())
        settings = cluster_settings(plane, directory)

        def runtime(settings: ExecutorSettings) -> EngineRuntime:
            return made.make(kind, settings)

        yield Host(settings, runtime, runtime(settings), engines)


async def test_engine_is_offered_started_and_stopped(host: Host) -> None:
    command = host.start_of()
    reports: list[float] = []

    offer = await host.offer()
    host.runtime.check(command)
    await host.runtime.fetch(command, lambda fraction, _: reports.append(fraction))
    async with host.running(command) as engine:
        base_url = await engine.until_ready(READY_SECONDS)
        async with host.session(command) as session, session.get(f"{base_url}/health") as answer:
            status = answer.status
        found = await host.workload(command)
        assert found is not None
        pids = host.pids(found)
        await engine.stop(2.0)
        left = await host.workload(command)

    assert offer.runtime is host.runtime.kind
    assert "simulated" in offer.engines
    assert status == 200
    assert found.labels == labels_of(command, host.settings)
    assert pids
    assert left is None
    # The API forgets a pod a moment before its engine here has ended.
    await eventually(lambda: not any(is_running(pid) for pid in pids), what="its end")


def is_running(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is not None and stat.is_running


async def test_what_it_cannot_run_is_refused_by_its_field(host: Host) -> None:
    for command, path in (
        (host.start_of(engine="no-such-engine"), "$.base_runtime"),
        (host.start_of({"no-such": 1}), "$.parameters.no-such"),
        (host.start_of(model="--help"), "$.model.id_or_path"),
    ):
        with pytest.raises(RefusedError) as refused:
            host.runtime.check(command)
        assert refused.value.path == path


async def test_switched_off_engine_is_refused(host: Host) -> None:
    runtime = host.make(msgspec.structs.replace(host.settings, allow_simulated_engine=False))

    with pytest.raises(RefusedError, match="switched off") as refused:
        runtime.check(host.start_of())

    assert refused.value.code is ErrorCode.UNSUPPORTED
    assert "switched off" in (await runtime.offer()).missing["simulated"]


async def test_ended_engine_tells_exit_and_last_lines(host: Host) -> None:
    command = host.start_of({"die-after-requests": 0})
    async with host.running(command) as engine:
        base_url = await engine.until_ready(READY_SECONDS)
        ended = asyncio.create_task(engine.until_ended())
        chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        async with host.session(command) as session:
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{base_url}/v1/chat/completions", json=chat)
        failure = await asyncio.wait_for(ended, 40)

    assert (failure.kind, failure.exit_code) == (FailureKind.ENGINE_EXITED, 1)
    assert "simulated ended during the benchmark" in failure.message
    assert any("listening on" in line for line in failure.log_tail)


async def test_engine_killed_before_ready_says_so(host: Host) -> None:
    command = host.start_of(NEVER)
    async with host.running(command) as engine:
        ready = asyncio.create_task(engine.until_ready(60))
        pids = await host.until_running(command)
        for pid in pids:
            with suppress(ProcessLookupError):  # a container's first process takes the others along
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(AttemptFailed) as failed:
            await asyncio.wait_for(ready, 40)

    assert failed.value.failure.kind is FailureKind.ENGINE_EXITED
    assert failed.value.failure.exit_code == -signal.SIGKILL
    assert "before it was ready with signal 9" in failed.value.failure.message


async def test_engine_never_ready_fails_in_time(host: Host) -> None:
    async with host.running(host.start_of(NEVER)) as engine:
        with pytest.raises(AttemptFailed) as failed:
            await engine.until_ready(0.5)

    assert failed.value.failure.kind is FailureKind.READINESS_TIMEOUT


async def test_engine_ignoring_sigterm_is_killed(host: Host) -> None:
    if host.pod_engines is not None:
        pytest.skip("kwok forgets a pod at once, whatever grace it has; a kubelet keeps to it")
    command = host.start_of({"ignore-sigterm": True})
    async with host.running(command) as engine:
        await engine.until_ready(READY_SECONDS)
        began_at = time.monotonic()
        await engine.stop(0.3)
        took_seconds = time.monotonic() - began_at

    assert await host.workload(command) is None
    assert 0.3 <= took_seconds < 5


async def test_cut_off_start_leaves_nothing(host: Host) -> None:
    command = host.start_of()
    for delay_seconds in (0.0, 0.05, 0.2):
        starting = asyncio.create_task(host.runtime.start(launch_of(command, host.settings)))
        await asyncio.sleep(delay_seconds)
        await cancel_and_wait(starting)
        await host.runtime.end(labels_of(command, host.settings))

        assert await host.workload(command) is None
        if not starting.cancelled():
            await starting.result().stop(0.0)


async def test_new_life_ends_what_a_former_started(host: Host) -> None:
    command = host.start_of({"ignore-sigterm": True})
    earlier = await host.runtime.start(launch_of(command, host.settings))
    await earlier.until_ready(READY_SECONDS)
    later = host.make(host.settings)

    found = {each.labels for each in await later.workloads()}
    await later.end(labels_of(command, host.settings))
    left = await later.workloads()
    await earlier.stop(0.0)

    assert labels_of(command, host.settings) in found
    assert left == ()


async def test_only_own_reservation_is_ended(host: Host) -> None:
    """Another installation's has even the same reservation."""
    command = host.start_of()
    other = msgspec.structs.replace(
        host.settings,
        data_dir=str(Path(host.settings.data_dir) / "other"),
        installation_id=f"test-{uuid4()}",
    )
    labels = labels_of(command, host.settings)
    async with host.running(command, other) as foreign, host.running(host.start_of()) as neighbour:
        await foreign.until_ready(READY_SECONDS)
        await neighbour.until_ready(READY_SECONDS)
        await host.runtime.end(labels)
        seen = await host.workload(command)
        ended = {asyncio.create_task(each.until_ended()) for each in (foreign, neighbour)}
        done, _ = await asyncio.wait(ended, timeout=0.5)
        for task in ended:
            await cancel_and_wait(task)

    assert seen is None
    assert done == set()
