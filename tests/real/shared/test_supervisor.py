"""The supervisor with real processes: order, readiness, restarts, stops, and nobody left behind."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import asyncpg
import nats
import nats.errors
import pytest
from nats.js import JetStreamContext

from shared.lifecycle import DataDirectoryBusy, DataDirectoryLock
from shared.local_platform.embedded import EmbeddedPostgres
from shared.local_platform.platform import PlatformOptions, run_platform
from shared.local_platform.supervisor.leftovers import find_marked_processes
from shared.local_platform.supervisor.service import ChildSpec
from shared.local_platform.supervisor.supervisor import (
    Backoff,
    ChildState,
    State,
    Supervisor,
    read_states,
)
from shared.paths import DataDirectory, Endpoint
from shared.processes.child_process import NotReady, rotate_log
from shared.testing import NatsServer, eventually, short_directory
from tests.support.disks.small_disk import fill, small_disk
from tests.support.idle_clock import Clock
from tests.support.paths import ROOT

QUICK = Backoff(first_seconds=0.02, longest_seconds=0.1)

# To import our own is most of what a child's start takes; those of PLATFORM do.
BARE = """
import os, signal, subprocess, sys, time
def notify_ready(): os.symlink(str(os.getpid()), os.environ["GPUSTEWARD_READY_FILE"])
"""
SERVES = "notify_ready(); signal.pause()"
IGNORES_SIGTERM = (
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); notify_ready()\nwhile True: time.sleep(1)"
)
LEAVES_A_RUNAWAY = (
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
    " start_new_session=True)\n"
    "notify_ready(); signal.pause()"
)


def service(name: str, script: str = SERVES, **limits: float) -> ChildSpec:
    return ChildSpec(
        name=name,
        argv=[sys.executable, "-S", "-c", BARE + script],
        env={"PATH": os.defpath},
        **limits,
    )


@pytest.fixture
def directory() -> Iterator[DataDirectory]:
    with short_directory() as path:
        made = DataDirectory(path / "data")
        made.prepare()
        yield made


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[asyncio.Task[None]]:
    """A supervisor whose children are ready; stopped afterwards if it still runs."""
    task = asyncio.create_task(supervisor.run())
    try:
        await eventually(lambda: task.done() or are_ready(supervisor), what="all to be ready")
        yield task
    finally:
        supervisor.request_stop()
        await asyncio.gather(task, return_exceptions=True)


def are_ready(supervisor: Supervisor) -> bool:
    states = supervisor.states
    return bool(states) and all(known.state is State.READY for known in states)


def state_of(supervisor: Supervisor, name: str) -> ChildState:
    return next(known for known in supervisor.states if known.name == name)


def pid_of(supervisor: Supervisor, name: str) -> int:
    pid = state_of(supervisor, name).pid
    assert pid is not None
    return pid


def restarted(supervisor: Supervisor, name: str, old_pid: int) -> Callable[[], bool]:
    def check() -> bool:
        known = state_of(supervisor, name)
        return known.state is State.READY and known.pid != old_pid

    return check


def marked(directory: DataDirectory) -> list[int]:
    return find_marked_processes(str(directory.root.resolve()))


async def test_stages_start_in_order_and_stop_in_reverse(directory: DataDirectory) -> None:
    seen: list[tuple[str, State]] = []
    supervisor = Supervisor(
        [[service("server")], [service("one")], [service("two")]],
        directory,
        on_change=lambda known: seen.append((known.name, known.state)),
    )

    async with running(supervisor):
        pass

    names = ["server", "one", "two"]
    started = [(name, state) for name in names for state in (State.STARTING, State.READY)]
    stopped = [
        (name, state) for name in reversed(names) for state in (State.STOPPING, State.STOPPED)
    ]
    assert seen == started + stopped
    assert marked(directory) == []


async def test_ended_child_is_restarted_and_told(
    directory: DataDirectory,
) -> None:
    supervisor = Supervisor([[service("one"), service("two")]], directory, backoff=QUICK)

    async with running(supervisor):
        killed, untouched = pid_of(supervisor, "one"), pid_of(supervisor, "two")
        os.kill(killed, signal.SIGKILL)
        await eventually(restarted(supervisor, "one", killed), what="a new process")

        one, two = read_states(directory)
        assert (one.name, one.state, one.restarts, one.last_exit) == (
            "one",
            State.READY,
            1,
            "SIGKILL",
        )
        assert (two.pid, two.restarts) == (untouched, 0)

    assert {known.state for known in read_states(directory)} == {State.STOPPED}


async def test_restart_delays_double_to_the_maximum(directory: DataDirectory) -> None:
    lives = directory.root / "lives"
    script = (
        f"n = open({str(lives)!r}, 'a'); n.write(f'{{time.monotonic()}}\\n'); n.close()\n"
        "notify_ready(); time.sleep(0.1); sys.exit(3)"
    )
    backoff = Backoff(first_seconds=0.2, longest_seconds=0.8)
    supervisor = Supervisor([[service("brief", script)]], directory, backoff=backoff)
    task = asyncio.create_task(supervisor.run())

    await eventually(
        lambda: lives.exists() and len(lives.read_text().split()) >= 5,
        what="five lives",
    )
    supervisor.request_stop()
    await task

    starts = [float(line) for line in lives.read_text().split()]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert all(
        gap >= 0.1 + delay for gap, delay in zip(gaps, (0.2, 0.4, 0.8, 0.8), strict=False)
    ), gaps
    assert state_of(supervisor, "brief").last_exit == "exit 3"


async def test_child_that_never_starts_ends_supervisor(
    directory: DataDirectory,
) -> None:
    broken = service("broken", "print('no such model'); sys.exit(1)")
    supervisor = Supervisor([[service("one")], [broken]], directory, backoff=QUICK)

    with pytest.raises(NotReady, match=r"(?s)broken ended \(exit 1\).*no such model"):
        await supervisor.run()

    assert state_of(supervisor, "broken").restarts == QUICK.start_attempts - 1
    assert marked(directory) == []


async def test_child_refusing_settings_is_not_restarted(
    directory: DataDirectory,
) -> None:
    refusing = service("refusing", "print('no such fleet'); sys.exit(os.EX_CONFIG)")
    supervisor = Supervisor([[refusing]], directory, backoff=QUICK)

    with pytest.raises(NotReady, match=r"(?s)refusing ended \(exit 78\).*no such fleet"):
        await supervisor.run()

    assert state_of(supervisor, "refusing").restarts == 0


async def test_silent_child_is_killed_and_restarted(
    directory: DataDirectory,
) -> None:
    first = directory.root / "first"
    script = (
        f"from pathlib import Path\np = Path({str(first)!r})\n"
        "if not p.exists(): p.touch(); time.sleep(60)\n"
        "notify_ready(); signal.pause()"
    )
    silent = service("silent", script, ready_timeout_seconds=1.0)
    supervisor = Supervisor([[silent]], directory, backoff=QUICK)

    async with running(supervisor):
        known = state_of(supervisor, "silent")

        assert known.restarts == 1
        assert known.last_exit is not None
        assert "was not ready within 1 s" in known.last_exit


async def test_ready_file_of_earlier_life_is_ignored(directory: DataDirectory) -> None:
    directory.ready_path("silent").write_text("1\n")
    silent = service("silent", "time.sleep(60)", ready_timeout_seconds=0.3)
    once = Backoff(start_attempts=1)

    with pytest.raises(NotReady, match="was not ready"):
        await Supervisor([[silent]], directory, backoff=once).run()


async def test_child_ignoring_the_signal_is_killed(
    directory: DataDirectory, idle_clock: Clock
) -> None:
    stubborn = service("stubborn", IGNORES_SIGTERM, stop_timeout_seconds=0.3)
    supervisor = Supervisor([[stubborn]], directory)

    async with running(supervisor) as task:
        asked_at = idle_clock()
        supervisor.request_stop()
        await task
        took = idle_clock() - asked_at

    assert 0.3 - 1e-6 <= took < 5
    assert marked(directory) == []


async def test_a_second_request_stops_at_once(directory: DataDirectory, idle_clock: Clock) -> None:
    stubborn = service("stubborn", IGNORES_SIGTERM, stop_timeout_seconds=60)
    supervisor = Supervisor([[stubborn]], directory)

    async with running(supervisor) as task:
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually(
            lambda: state_of(supervisor, "stubborn").state is State.STOPPING, what="the first stop"
        )
        asked_at = idle_clock()
        os.kill(os.getpid(), signal.SIGINT)
        await task
        took = idle_clock() - asked_at

    assert took < 5
    assert state_of(supervisor, "stubborn").state is State.STOPPED
    assert marked(directory) == []


async def test_full_disk_delays_writes_and_ends_nothing(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 24) as disk:
        directory, said = DataDirectory(disk / "data"), list[str]()
        directory.prepare()
        endpoint = Endpoint(pid=os.getpid(), api_url="http://127.0.0.1:1")
        supervisor = Supervisor(
            [[service("one")]],
            directory,
            backoff=QUICK,
            on_started=lambda: directory.write_endpoint(endpoint),
            on_disk=said.append,
        )
        filler = fill(disk)

        async with running(supervisor) as task:
            os.kill(killed := pid_of(supervisor, "one"), signal.SIGKILL)
            await eventually(restarted(supervisor, "one", killed), what="a new process")
            await eventually(lambda: len(said) == 1, what="word of the full disk")
            assert not task.done()
            assert read_states(directory) == []
            filler.unlink()
            await eventually(lambda: len(said) == 2, what="word of the room")
            await eventually(
                lambda: (
                    [known.pid for known in read_states(directory)] == [pid_of(supervisor, "one")]
                ),
                what="the state file",
            )
            assert directory.read_endpoint() == endpoint
            fill(disk)

    assert "0 MB of 24 MB" in said[0]
    assert "has room again" in said[1]


@pytest.mark.long
async def test_servers_resume_once_disk_has_room() -> None:
    with short_directory() as path, small_disk(path / "disk", 128) as disk:
        disk.chmod(0o711)
        directory = DataDirectory(disk / "data")
        directory.prepare()
        bus, database = NatsServer(directory.nats), EmbeddedPostgres(directory.postgres)
        supervisor = Supervisor([[bus, database]], directory, backoff=QUICK)
        async with running(supervisor):
            client = await nats.connect(bus.authenticated_url, error_cb=ignored)
            stream = client.jetstream(timeout=1.0)
            await stream.add_stream(name="FACTS", subjects=["facts.>"])
            connection = await asyncpg.connect(database.dsn)
            filler = fill(disk)
            assert not await is_stored(stream)
            # Until its log of writes needs another segment.
            while await is_written(connection):
                pass
            await eventually(lambda: state_of(supervisor, "postgres").restarts > 2, what="restarts")
            assert client.is_connected
            filler.unlink()

            await eventually(lambda: is_stored(stream), within_seconds=30, what="a stored event")
            await eventually(lambda: are_ready(supervisor), within_seconds=30, what="both servers")
            connection = await asyncpg.connect(database.dsn)
            assert await connection.fetchval("SELECT 1") == 1
            await connection.close()
            await client.close()


async def ignored(_: Exception) -> None:
    """Disconnections are what the test makes."""


async def is_stored(stream: JetStreamContext) -> bool:
    try:
        await stream.publish("facts.one", b"x" * 100_000)
    except (nats.errors.Error, OSError):
        return False
    return True


async def is_written(connection: asyncpg.Connection) -> bool:
    try:
        await connection.execute("SELECT pg_logical_emit_message(true, '', repeat('x', 1000000))")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return False
    return True


async def test_first_start_on_full_disk_is_retried(
    directory: DataDirectory,
) -> None:
    room = directory.root / "room"
    script = (
        f"from pathlib import Path\nif not Path({str(room)!r}).exists():"
        " sys.exit('OSError: [Errno 28] No space left on device')\n"
        "notify_ready(); signal.pause()"
    )
    supervisor = Supervisor([[service("full", script)]], directory, backoff=QUICK)
    task = asyncio.create_task(supervisor.run())
    try:
        await eventually(
            lambda: task.done() or any(known.restarts > 4 for known in supervisor.states),
            what="many starts",
        )
        assert not task.done()
        room.touch()
        await eventually(lambda: are_ready(supervisor), what="all to be ready")
    finally:
        supervisor.request_stop()
        await task


async def test_descendants_out_of_group_are_ended(directory: DataDirectory) -> None:
    supervisor = Supervisor([[service("parent", LEAVES_A_RUNAWAY)]], directory)

    async with running(supervisor):
        assert len(marked(directory)) == 2

    assert marked(directory) == []


async def test_leftovers_are_ended_before_the_start(
    directory: DataDirectory,
) -> None:
    orphan = subprocess.Popen(  # noqa: ASYNC220  # starting it blocks for a moment only
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={"GPUSTEWARD_SUPERVISED_BY": str(directory.root.resolve())},
    )
    await eventually(lambda: marked(directory) == [orphan.pid], what="the orphan to be marked")

    async with running(Supervisor([[service("one")]], directory)):
        assert orphan.wait(timeout=30) == -signal.SIGKILL


async def test_output_goes_to_the_log_of_the_childs_name(directory: DataDirectory) -> None:
    talking = service("talking", "print('said', flush=True); notify_ready(); signal.pause()")

    async with running(Supervisor([[talking]], directory)):
        assert directory.log_path("talking").read_text() == "said\n"


def test_long_log_is_rotated_while_written(tmp_path: Path) -> None:
    path = tmp_path / "one.log"
    with path.open("a") as writer:
        writer.write("x" * 100)
        writer.flush()

        rotate_log(path, limit_bytes=99)
        writer.write("after")

    assert (tmp_path / "one.log.1").read_text() == "x" * 100
    assert path.read_text() == "after"


def test_second_platform_is_told_the_holder(
    directory: DataDirectory,
) -> None:
    with DataDirectoryLock(directory, command="gpusteward up") as held:
        held.announce("http://127.0.0.1:8470")

        with pytest.raises(DataDirectoryBusy) as refused:
            DataDirectoryLock(directory).acquire()

    assert refused.value.holder is not None
    assert refused.value.holder.pid == os.getpid()
    sentence = str(refused.value)
    assert f"held by process {os.getpid()} (gpusteward up)" in sentence
    assert "http://127.0.0.1:8470" in sentence
    assert f"`kill {os.getpid()}`" in sentence
    assert "--data-dir" in sentence
    DataDirectoryLock(directory).acquire().release()


def test_the_lock_of_a_killed_process_is_free(directory: DataDirectory) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from shared.lifecycle import DataDirectoryLock\nfrom shared.paths import DataDirectory\n"
        "held = DataDirectoryLock(DataDirectory(Path(sys.argv[1]))).acquire()\n"
        "print('held', flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, directory.root], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(DataDirectoryBusy, match=f"process {holder.pid}"):
        DataDirectoryLock(directory).acquire()

    holder.kill()
    holder.communicate()

    DataDirectoryLock(directory).acquire().release()


def test_endpoint_without_supervisor_is_none(directory: DataDirectory) -> None:
    directory.write_endpoint(Endpoint(pid=os.getpid(), api_url="http://127.0.0.1:1"))
    assert directory.read_endpoint() == Endpoint(pid=os.getpid(), api_url="http://127.0.0.1:1")
    assert directory.endpoint_path.stat().st_mode & 0o777 == 0o600

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    directory.write_endpoint(Endpoint(pid=gone.pid))

    assert directory.read_endpoint() is None


def test_an_installation_keeps_its_id(directory: DataDirectory) -> None:
    assert directory.installation_id() == directory.installation_id()


PLATFORM = """
import asyncio, os, signal, sys
from pathlib import Path
from shared.local_platform.embedded import EmbeddedPostgres
from shared.paths import DataDirectory
from shared.local_platform.supervisor.service import ChildSpec
from shared.local_platform.supervisor.supervisor import Supervisor
from shared.local_platform.supervisor.supervisor import marks_of
from shared.testing import NatsServer

directory = DataDirectory(Path(sys.argv[1]))
directory.prepare()
marks = marks_of(directory)
nats = NatsServer(directory.nats, log_path=directory.log_path("nats"), environment=marks)
postgres = EmbeddedPostgres(
    directory.postgres, log_path=directory.log_path("postgres"), environment=marks
)
script = "import signal; import shared.lifecycle as s; s.notify_ready(); signal.pause()"
services = [
    ChildSpec(name=name, argv=[sys.executable, "-c", script], env=os.environ)
    for name in ("one", "two")
]

def announce():
    print(nats.authenticated_url, postgres.dsn, flush=True)

asyncio.run(Supervisor([[nats, postgres], services], directory, on_started=announce).run())
"""


def start_platform(directory: DataDirectory) -> tuple[subprocess.Popen[str], str, str]:
    """A supervisor process with both servers and two services, the servers' addresses with it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PLATFORM, directory.root],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    while line := process.stdout.readline():
        if line.startswith("nats://"):
            nats_url, postgres_dsn = line.split()
            return process, nats_url, postgres_dsn
    raise AssertionError(f"the supervisor ended with status {process.wait()}")


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *descendants(int(child))]
    return found


def is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


async def test_killed_supervisor_leaves_no_process(directory: DataDirectory) -> None:
    process, _, _ = start_platform(directory)
    everybody = descendants(process.pid)
    assert len(everybody) >= 4 + 3, "both services, both servers, the workers of Postgres"

    process.kill()
    process.communicate()

    await eventually(lambda: all(map(is_gone, everybody)), what="everybody to be gone")
    assert marked(directory) == []


@pytest.mark.long
async def test_platform_keeps_data_after_sigkill(directory: DataDirectory) -> None:
    process, first_nats_url, dsn = start_platform(directory)
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
    connection.terminate()
    process.kill()
    process.communicate()

    process, nats_url, dsn = start_platform(directory)
    connection = await asyncpg.connect(dsn)
    try:
        assert await connection.fetchval("SELECT n FROM kept") == 1
        assert nats_url == first_nats_url
    finally:
        await connection.close()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=45)
    assert process.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_signal_stops_everything_in_order(
    directory: DataDirectory, sent: signal.Signals
) -> None:
    process, _, _ = start_platform(directory)
    everybody = descendants(process.pid)

    process.send_signal(sent)
    process.communicate(timeout=45)

    assert process.returncode == 0
    assert all(map(is_gone, everybody))
    stopped = json.loads(directory.state_path.read_text())
    assert {known["state"] for known in stopped} == {"stopped"}
    assert "database system is shut down" in directory.log_path("postgres").read_text()


@pytest.mark.long
async def test_killed_servers_keep_their_addresses(
    directory: DataDirectory,
) -> None:
    process, nats_url, dsn = start_platform(directory)
    before = {known.name: known.pid for known in read_states(directory)}

    async def kill(*names: str) -> None:
        killed = {known.name: known.pid for known in read_states(directory)}
        for name in names:
            pid = killed[name]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

        def are_back() -> bool:
            now = {known.name: known for known in read_states(directory)}
            return all(
                now[name].state is State.READY and now[name].pid != killed[name] for name in names
            )

        await eventually(are_back, what=f"{names} to be back")

    try:
        shutil.rmtree(directory.nats / "jetstream")
        await kill("nats", "postgres")
        client = await nats.connect(nats_url)
        await client.jetstream().add_stream(name="FACTS", subjects=["facts.>"])
        await client.close()
        await kill("nats")
        client = await nats.connect(nats_url)
        assert (await client.jetstream().stream_info("FACTS")).config.subjects == ["facts.>"]
        await client.close()
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
        after = {known.name: known.pid for known in read_states(directory)}
        assert (after["one"], after["two"]) == (before["one"], before["two"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=45)


async def test_running_platform_refuses_a_second_one(
    directory: DataDirectory,
) -> None:
    options = PlatformOptions(data_dir=directory.root, services=())
    told: list[Endpoint] = []
    task = asyncio.create_task(run_platform(options, on_started=told.append))
    await eventually(lambda: bool(told) or task.done(), what="the platform to be up")

    assert directory.read_endpoint() == told[0]
    assert told[0].nats_url is not None
    with pytest.raises(DataDirectoryBusy):
        await run_platform(options)

    os.kill(os.getpid(), signal.SIGTERM)
    await task
    assert directory.read_endpoint() is None
    assert not directory.endpoint_path.exists()
