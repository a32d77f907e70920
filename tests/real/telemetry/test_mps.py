"""MPS daemons as processes: started for empty devices, adopted, restarted, stopped, others' left.

The daemon is a fake, because the hardware is missing.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from schemas.telemetry.readings import DeviceFacts, GpuReading, GpuSampled, Source
from services.telemetry.domain.holdings import Holdings
from services.telemetry.mps.control import MARK, MpsControl
from services.telemetry.mps.daemons import MpsDaemons
from shared.clock import utcnow
from shared.ids import new_id
from shared.mps import daemon_listens, pipe_dir_for
from shared.processes.environment import processes_with
from shared.testing import eventually, short_directory
from tests.support.fakes.mps_control import write_mps_control

UUIDS = ("GPU-a", "GPU-b")


class Host:
    """Two GPUs; what is held and what runs on them is the test's word."""

    def __init__(self, directory: Path) -> None:
        self.pipe_dir = directory / "mps"
        self.control = MpsControl(
            str(write_mps_control(directory)), str(self.pipe_dir), directory / "logs"
        )
        self.holdings = Holdings()
        self.holdings.reconcile({}, frozenset())
        self.processes: dict[str, tuple[()] | None] = dict.fromkeys(UUIDS, ())

    def agent(self, *, is_wanted: bool = True, settle_seconds: float = 0.0) -> MpsDaemons:
        facts = [
            DeviceFacts(uuid=uuid, index=n, name="NVIDIA H100", mig_enabled=False)
            for n, uuid in enumerate(UUIDS)
        ]
        return MpsDaemons(
            self.control,
            is_wanted=is_wanted,
            settle_seconds=settle_seconds,
            holdings=self.holdings,
            facts=lambda: facts,
            fresh=self.sample,
        )

    def sample(self) -> GpuSampled:
        return GpuSampled(
            node_id="alpha",
            boot_id=new_id(),
            sequence=1,
            observed_at=utcnow(),
            interval_seconds=1.0,
            source=Source.NVML,
            gpus=tuple(
                GpuReading(uuid=uuid, index=n, processes=self.processes[uuid])
                for n, uuid in enumerate(UUIDS)
            ),
        )

    def dir_of(self, uuid: str) -> str:
        return str(self.pipe_dir / uuid)

    def pids(self, uuid: str) -> list[int]:
        return processes_with(f"{MARK}={self.dir_of(uuid)}".encode())

    def listening(self) -> list[bool]:
        return [daemon_listens(self.dir_of(uuid)) for uuid in UUIDS]


@pytest.fixture
def host() -> Iterator[Host]:
    with short_directory() as directory:
        made = Host(directory)
        try:
            yield made
        finally:
            for pid in [pid for uuid in UUIDS for pid in made.pids(uuid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


async def test_each_device_has_its_daemon_once_it_is_empty(host: Host) -> None:
    reservation = new_id()
    host.holdings.grant(reservation, ["GPU-b"])
    agent = host.agent()

    await agent.poll()
    before = host.listening(), agent.all_listen
    host.holdings.end(reservation)
    await agent.poll()
    await agent.poll()

    assert before == ([True, False], False)
    assert (host.listening(), agent.all_listen) == ([True, True], True)
    assert [len(host.pids(uuid)) for uuid in UUIDS] == [1, 1]
    log = host.control.log_dir / "GPU-b" / "control.log"
    await eventually(lambda: log.exists() and log.read_text() == "Start GPU-b\n", what="its log")
    assert pipe_dir_for(str(host.pipe_dir), "GPU-a") == host.dir_of("GPU-a")


async def test_what_nobody_knows_of_changes_nothing(host: Host) -> None:
    host.holdings = Holdings()  # the scheduler was not heard of
    await host.agent().poll()
    host.holdings.reconcile({}, frozenset())
    host.processes = {"GPU-a": None, "GPU-b": ()}
    await host.agent().poll()

    assert host.listening() == [False, True]


async def test_next_agent_stops_only_empty_daemons(
    host: Host,
) -> None:
    await host.agent().poll()
    before = [host.pids(uuid) for uuid in UUIDS]
    await host.agent().poll()
    adopted = [host.pids(uuid) for uuid in UUIDS]

    host.holdings.grant(new_id(), ["GPU-a"])
    await host.agent(is_wanted=False, settle_seconds=3600.0).poll()
    settling = host.listening()
    last = host.agent(is_wanted=False)
    await last.poll()

    assert adopted == before
    assert settling == [True, True]
    assert host.listening() == [True, False]
    assert not last.all_listen
    assert host.pids("GPU-a") == before[0]


async def test_killed_daemon_restarts_under_its_holder(host: Host) -> None:
    agent = host.agent()
    await agent.poll()
    [killed] = host.pids("GPU-a")
    host.holdings.grant(new_id(), ["GPU-a"])

    os.kill(killed, signal.SIGKILL)
    await eventually(lambda: not host.pids("GPU-a"), what="it to be gone")

    async def is_back() -> bool:
        await agent.poll()
        return host.listening() == [True, True]

    await eventually(is_back, within_seconds=30, what="another daemon")
    assert host.pids("GPU-a") != [killed]


async def test_foreign_daemon_is_left_alone(host: Host) -> None:
    directory = host.pipe_dir / "GPU-a"
    directory.mkdir(parents=True)
    environment = {
        "CUDA_MPS_PIPE_DIRECTORY": str(directory),
        "CUDA_MPS_LOG_DIRECTORY": str(directory),
        "CUDA_VISIBLE_DEVICES": "GPU-a",
        "PATH": os.defpath,
    }
    assert await run_apart_from_agents(host, environment, "", "-d") == 0
    try:
        await host.agent().poll()
        await host.agent(is_wanted=False).poll()

        assert daemon_listens(str(directory))
        assert host.pids("GPU-a") == []
    finally:
        assert await run_apart_from_agents(host, environment, "quit\n") == 0


async def run_apart_from_agents(
    host: Host, environment: dict[str, str], command: str, *arguments: str
) -> int | None:
    """The control program as somebody else runs it; its exit code."""
    process = await asyncio.create_subprocess_exec(
        host.control.program, *arguments, stdin=asyncio.subprocess.PIPE, env=environment
    )
    await process.communicate(command.encode())
    return process.returncode


async def test_failing_daemon_is_retried_with_pauses(host: Host) -> None:
    fails = '#!/bin/sh\necho x >> "$0.tries"\nexit 3\n'
    await asyncio.to_thread(Path(host.control.program).write_text, fails)
    agent = host.agent()

    for _ in range(5):
        await agent.poll()

    assert host.listening() == [False, False]
    tries = await asyncio.to_thread(Path(f"{host.control.program}.tries").read_text)
    assert tries == "x\n" * len(UUIDS)


async def test_foreign_directory_has_no_daemon_of_ours(host: Host) -> None:
    host.pipe_dir.mkdir()
    (host.pipe_dir / "GPU-a").symlink_to(host.pipe_dir.parent)

    await host.agent().poll()

    assert host.listening() == [False, True]
