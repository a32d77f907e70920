"""What runs and is not granted is found by its labels and ended; what is another's is left."""

from pathlib import Path
from uuid import UUID, uuid4

from schemas.errors import Accepted
from services.executor.app import create_service
from services.executor.host.local_executors import LocalExecutorRegistry
from services.executor.journal.journal import Journal
from services.executor.runtimes.host import host_runtimes
from services.executor.settings import ExecutorSettings
from services.executor.workloads import Workloads
from shared.messaging.bus import Bus
from shared.testing import eventually
from tests.support.worlds.executor import (
    labelled_process,
    make_endless_start,
    make_fence,
    make_settings,
    scheduling,
)


async def ungranted_on(node_id: str, settings: ExecutorSettings, journal: Path) -> dict[UUID, str]:
    """What the executor of that node, on this host, would stop."""
    memory = await Journal(journal).open()
    bus = Bus.from_settings("executor", settings)
    await bus.start()
    try:
        workloads = Workloads(
            node_id=node_id,
            local_executors=LocalExecutorRegistry(settings.installation_id),
            runtimes=host_runtimes(settings, memory),
            journal=memory,
            bus=bus,
        )
        return await workloads.find_ungranted(())
    finally:
        await bus.close()
        memory.close_nowait()


async def test_attempt_is_stopped_only_by_its_own_node(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_endless_start()
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(start)
        await scheduler.until_measuring(start)
        by_neighbour = await ungranted_on("node-2", settings, tmp_path / "2.db")
        by_one_without_memory = await ungranted_on("node-1", settings, tmp_path / "1.db")
        running = await scheduler.running()

    assert by_neighbour == {}
    assert by_one_without_memory == {start.reservation_id: "no attempt under way has it"}
    assert running.workloads is not None
    assert {each.node_id for each in running.workloads} == {"node-1"}


async def test_engine_without_attempt_is_ended_in_interval(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path, reconcile_interval_seconds=0.3)
    mine, commands_own, foreign = uuid4(), uuid4(), uuid4()
    experiment = {"GPUSTEWARD_EXPERIMENT": str(uuid4())}
    async with scheduling(settings), create_service(settings).running():
        left = labelled_process(mine, settings.installation_id, experiment)
        command = labelled_process(commands_own, settings.installation_id)
        other = labelled_process(foreign, "another", experiment)
        try:
            await eventually(lambda: left.poll() is not None, what="the engine ended")
            others = [command.poll(), other.poll()]
        finally:
            for process in (left, command, other):
                process.kill()
                process.wait()

    assert others == [None, None]


async def test_fence_ends_workload_of_node_not_on_host(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path)
    mine = LocalExecutorRegistry(settings.installation_id)
    reservation_id = uuid4()
    async with scheduling(settings) as scheduler, create_service(settings).running():
        carried = labelled_process(
            reservation_id, settings.installation_id, {"GPUSTEWARD_NODE": "elsewhere"}
        )
        mine.announce("node-2")
        foreign = labelled_process(
            reservation_id, settings.installation_id, {"GPUSTEWARD_NODE": "node-2"}
        )
        try:

            async def is_fenced() -> bool:
                return isinstance(await scheduler.ask(make_fence(reservation_id)), Accepted)

            await eventually(is_fenced, what="the fence accepted")
            ended = [carried.poll() is not None, foreign.poll() is not None]
        finally:
            for process in (carried, foreign):
                process.kill()
                process.wait()
            mine.close()

    assert ended == [True, False]
