"""`gpusteward exec` as a process: the lease, the environment, signals and every way to end."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from schemas.errors import EXIT_CODE, ErrorCode
from schemas.scheduler.reservations import ReservationState
from services.cli.failures import LEASE_LOST_EXIT_CODE
from shared.paths import is_process_alive
from shared.processes.cgroups import Cgroups
from shared.testing import eventually
from tests.support.fakes.gateway import stub_gateway
from tests.support.processes.command_line import Command, CommandProcess
from tests.support.worlds.gateway_views import NOW

HAS_CGROUPS = bool(Cgroups.of_this_host().hierarchies)
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
SLEEPER = (
    "import os, signal, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(60)"
)


@pytest.fixture
async def command(tmp_path: Path) -> AsyncIterator[Command]:
    async with stub_gateway() as (stub, url):
        yield Command(stub, url, tmp_path)


async def started(
    command: Command, tmp_path: Path, *options: str, script: str = SLEEPER
) -> tuple[CommandProcess, int]:
    """The command with a child that sleeps, and the child's process id."""
    pid_file = tmp_path / "pid"
    arguments = ["exec", "--gpus", "1", *options, "--", sys.executable, "-c", script]
    process = await command.start(*arguments, str(pid_file))
    await eventually(lambda: pid_file.exists() and pid_file.read_text() != "", what="the child")
    return process, int(pid_file.read_text())


async def gone(pid: int) -> None:
    await eventually(lambda: not is_process_alive(pid), what="the child to be gone")


def released(command: Command) -> list[str]:
    return [path.partition("?")[2] for _, path, _ in command.stub.calls_of("DELETE")]


async def test_command_sees_devices_and_keeps_exit_code(
    command: Command,
) -> None:
    script = f"{PRINT_ENVIRONMENT}; raise SystemExit(3)"

    ended = await command(
        "exec", "--gpus", "2", "--node", "alpha", "--", sys.executable, "-c", script
    )

    found = json.loads(ended.out)
    (reservation_id,) = command.stub.reservations
    assert ended.code == 3
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert found["GPUSTEWARD_RESERVATION"] == str(reservation_id)
    assert found["GPUSTEWARD_EPOCH"] == "7"
    assert found["GPUSTEWARD_NODE"] == "alpha"
    assert "simulated" in ended.err


async def test_exec_asks_this_node_and_confirms_lease_first(
    command: Command,
) -> None:
    await command("exec", "--gpus", "1", "--min-memory", "9000", "--node", "alpha", "--", "true")

    (_, _, asked), (_, renewed, body) = command.stub.calls_of("POST")
    assert asked["request"]["node_ids"] == ["alpha"]
    assert asked["request"]["min_memory_mb"] == 9000
    assert renewed.endswith("/renew")
    assert body == {"epoch": 7, "activate": True}
    assert released(command) == ["epoch=7&stopped=true"]


@pytest.mark.parametrize(
    ("program", "code", "given_back"),
    [
        # It is looked for first: nobody waits for GPUs to be told of a misspelt name.
        pytest.param("no-such-program", 127, [], id="missing"),
        pytest.param("/no/such/file", 127, [], id="missing file"),
        pytest.param("/etc", 126, ["epoch=7&stopped=true"], id="no file"),
    ],
)
async def test_unstartable_command_keeps_no_gpus(
    command: Command, program: str, code: int, given_back: list[str]
) -> None:
    ended = await command("exec", "--gpus", "1", "--", program)

    assert ended.code == code
    assert ended.err.startswith(f"gpusteward: {program}: ")
    assert released(command) == given_back


async def test_rejected_request_starts_nothing(command: Command, tmp_path: Path) -> None:
    command.stub.outcome = ReservationState.REJECTED

    ended = await command("exec", "--gpus", "9", "--", "touch", str(tmp_path / "started"))

    assert ended.code == EXIT_CODE[ErrorCode.UNSATISFIABLE]
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
async def test_signals_reach_command_and_set_exit_code(
    command: Command, tmp_path: Path, sent: signal.Signals
) -> None:
    script = f"import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)\n{SLEEPER}"
    process, pid = await started(command, tmp_path, script=script)

    process.send_signal(sent)

    assert await process.wait() == 128 + sent
    await gone(pid)
    assert released(command) == ["epoch=7&stopped=true"]


async def test_signal_while_queued_withdraws_request(command: Command, tmp_path: Path) -> None:
    command.stub.outcome = ReservationState.QUEUED
    process = await command.start("exec", "--gpus", "1", "--", "touch", str(tmp_path / "started"))
    await eventually(lambda: bool(command.stub.calls_of("GET")), what="it to wait")

    process.send_signal(signal.SIGTERM)

    assert await process.wait() == 128 + signal.SIGTERM
    assert released(command) == [""]
    assert not (tmp_path / "started").exists()


async def test_lost_lease_stops_command_and_children(command: Command, tmp_path: Path) -> None:
    """The child ignores SIGTERM, as a stuck engine would."""
    script = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPER}"
    process, pid = await started(command, tmp_path, "--ttl", "3", script=script)

    command.stub.renewal_refusal = ErrorCode.LEASE_LOST
    _, err = await process.communicate()

    assert process.returncode == LEASE_LOST_EXIT_CODE, err.decode()
    assert "the reservation was lost and the command was stopped" in err.decode()
    await gone(pid)


async def test_unconfirmed_lease_is_given_up_in_time(command: Command, tmp_path: Path) -> None:
    process, pid = await started(command, tmp_path, "--ttl", "6")
    loop = asyncio.get_running_loop()

    command.stub.renewal_refusal = ErrorCode.UNAVAILABLE
    began = loop.time()
    await gone(pid)
    took = loop.time() - began
    _, err = await process.communicate()

    assert process.returncode == LEASE_LOST_EXIT_CODE, err.decode()
    assert "no renewal was confirmed" in err.decode()
    assert took < 6.0


UNTIL_TOLD = (
    "import os, pathlib, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\n"
    "while not pathlib.Path(sys.argv[1]).with_name('go').exists(): time.sleep(0.02)\n"
    "raise SystemExit(3)"
)


@pytest.mark.parametrize(
    ("refusal", "want"),
    [
        pytest.param(ErrorCode.LEASE_LOST, LEASE_LOST_EXIT_CODE, id="lost meanwhile"),
        pytest.param(
            *(ErrorCode.UNAVAILABLE, LEASE_LOST_EXIT_CODE), id="nobody says", marks=pytest.mark.long
        ),
        pytest.param(None, 3, id="the ledger still has it"),
    ],
)
async def test_ended_command_reports_lease_lost_while_stopped(
    command: Command, tmp_path: Path, refusal: ErrorCode | None, want: int
) -> None:
    process, pid = await started(command, tmp_path, "--ttl", "3", script=UNTIL_TOLD)
    process.send_signal(signal.SIGSTOP)
    stopped_at = asyncio.get_running_loop().time()
    command.stub.renewal_refusal = refusal
    (tmp_path / "go").touch()

    def is_over() -> bool:
        return asyncio.get_running_loop().time() - stopped_at > 2.5 and is_zombie(pid)

    await eventually(is_over, what="the command's end and that of the lease")
    process.send_signal(signal.SIGCONT)
    _, err = await process.communicate()

    assert process.returncode == want
    assert ("the reservation was lost" in err.decode()) == (want == LEASE_LOST_EXIT_CODE)


@pytest.mark.parametrize(
    ("refusal", "want"),
    [
        pytest.param(ErrorCode.LEASE_LOST, LEASE_LOST_EXIT_CODE, id="its lease was taken back"),
        pytest.param(None, 128 + signal.SIGKILL, id="by whomever"),
    ],
)
async def test_killed_command_reports_revoked_lease(
    command: Command, tmp_path: Path, refusal: ErrorCode | None, want: int
) -> None:
    """As a preempted one is, whose node kills what runs of it long before the lease would end."""
    process, pid = await started(command, tmp_path)

    command.stub.renewal_refusal = refusal
    os.kill(pid, signal.SIGKILL)
    _, err = await process.communicate()

    assert process.returncode == want
    said = "the reservation was lost and the command was killed"
    assert (said in err.decode()) == (want == LEASE_LOST_EXIT_CODE)


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def test_lease_is_renewed_while_command_runs(command: Command, tmp_path: Path) -> None:
    process, _ = await started(command, tmp_path, "--ttl", "3")

    def renewals() -> list[bool]:
        calls = command.stub.calls_of("POST")
        return [body["activate"] for _, path, body in calls if path.endswith("/renew")]

    await eventually(lambda: len(renewals()) >= 3, what="two more renewals")
    process.terminate()
    await process.wait()

    assert renewals()[:3] == [True, False, False]


async def test_killing_cli_kills_command(command: Command, tmp_path: Path) -> None:
    process, pid = await started(command, tmp_path)

    process.kill()
    await process.wait()

    await gone(pid)


async def test_notice_is_printed_once_while_running(command: Command, tmp_path: Path) -> None:
    process, _ = await started(command, tmp_path, "--ttl", "3600")
    stub = command.stub
    await eventually(lambda: bool(stub.sockets), what="it to listen")
    [(reservation_id, view)] = stub.reservations.items()
    await stub.tell("scheduler.reservation_activated")

    stub.reservations[reservation_id] = replace(
        view, preempting_until=NOW, reason="active, but it has to stop by 12:00:30 UTC for B"
    )
    assert process.stderr is not None
    await stub.tell("scheduler.reservation_preempting")
    said = await until_line_of(process.stderr, "has to stop")
    process.terminate()
    _, rest = await process.communicate()

    assert said == "gpusteward: the reservation is active, but it has to stop by 12:00:30 UTC for B"
    assert process.returncode == 128 + signal.SIGTERM
    assert "has to stop" not in rest.decode()


async def test_notice_during_gateway_outage_is_printed_later(
    command: Command, tmp_path: Path
) -> None:
    process, _ = await started(command, tmp_path)
    stub = command.stub
    await eventually(lambda: bool(stub.sockets), what="it to listen")
    [(reservation_id, view)] = stub.reservations.items()

    stub.reservations[reservation_id] = replace(
        view, preempting_until=NOW, reason="active, but it has to stop by 12:00:30 UTC for B"
    )
    await stub.sockets[0].close()
    assert process.stderr is not None
    await until_line_of(process.stderr, "has to stop by 12:00:30 UTC for B")
    process.terminate()

    assert await process.wait() == 128 + signal.SIGTERM


async def until_line_of(stream: asyncio.StreamReader, text: str) -> str:
    """The first line that holds the text."""
    async with asyncio.timeout(40):
        async for line in stream:
            if text in line.decode():
                return line.decode().rstrip()
    raise AssertionError(f"expected a line with {text!r}, found the end")


ESCAPES = (
    "import pathlib, subprocess, sys, time\n"
    "subprocess.Popen(['setsid', 'env', '-i', 'sh', '-c', 'echo $$ > ' + sys.argv[1] + '.new; '\n"
    "    'mv ' + sys.argv[1] + '.new ' + sys.argv[1] + '; exec sleep 60'],\n"
    "    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
    "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)\n"
)


@pytest.mark.skipif(not HAS_CGROUPS, reason="no control group can be written here")
async def test_grandchild_without_environment_ends_too(command: Command, tmp_path: Path) -> None:
    pid_file = tmp_path / "grandchild"

    ended = await command("exec", "--gpus", "1", "--", sys.executable, "-c", ESCAPES, str(pid_file))

    assert ended.code == 0
    await gone(int(pid_file.read_text()))
    assert released(command) == ["epoch=7&stopped=true"]


async def test_the_help_says_what_can_escape(command: Command) -> None:
    ended = await command("exec", "--help")

    assert "`setsid env -i`" in ended.out


@pytest.mark.skipif(HAS_CGROUPS, reason="with a control group it is stopped")
async def test_process_outside_group_is_not_reported_stopped(
    command: Command, tmp_path: Path
) -> None:
    """A daemon still holds the GPU: its node's executor has to see to it."""
    pid_file = tmp_path / "pid"
    script = (
        "import subprocess, sys\n"
        "daemon = subprocess.Popen(['sleep', '60'], start_new_session=True,"
        " stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        f"open({str(pid_file)!r}, 'w').write(str(daemon.pid))"
    )

    ended = await command("exec", "--gpus", "1", "--", sys.executable, "-c", script)

    assert ended.code == 0
    assert released(command) == ["epoch=7&stopped=false"]
    with suppress(ProcessLookupError):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
