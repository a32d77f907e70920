"""The guard kills what is overdue, nothing else, and not before."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import msgspec
import pytest

from services.executor.guard.client import LeaseGuard
from services.executor.guard.process import QUIET_SECONDS, HeldWorkloads, Hold, Release
from services.executor.host.processes import WorkloadLabel, mark_of
from tests.support.worlds.executor import labelled_process

INSTALLATION = f"test-{uuid4()}"
SOON = 0.4


def label(reservation_id: UUID) -> WorkloadLabel:
    return WorkloadLabel(reservation_id=reservation_id, installation_id=INSTALLATION)


def note(hold: Hold | Release) -> bytes:
    return msgspec.json.encode(hold)


@contextmanager
def workload(reservation_id: UUID) -> Iterator["subprocess.Popen[bytes]"]:
    process = labelled_process(reservation_id, INSTALLATION)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def guard() -> Iterator[LeaseGuard]:
    started = LeaseGuard()
    yield started
    for reservation_id in tuple(started._holds):  # noqa: SLF001  # so that it ends
        started.release(reservation_id)
    started.close()


def test_only_overdue_workloads_are_killed(
    guard: LeaseGuard,
) -> None:
    overdue, renewed, released = uuid4(), uuid4(), uuid4()
    with workload(overdue) as first, workload(renewed) as second, workload(released) as third:
        kill_at = time.monotonic() + SOON
        for each in (overdue, renewed, released):
            guard.hold(label(each), kill_at)
        guard.hold(label(renewed), kill_at + 60)
        guard.release(released)
        exit_code = first.wait(30)
        killed_at = time.monotonic()
        others = [second.poll(), third.poll()]

    assert exit_code == -9
    assert killed_at >= kill_at
    assert others == [None, None]


def test_marked_process_without_label_is_killed(guard: LeaseGuard) -> None:
    reservation_id = uuid4()
    shed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={})
    try:
        mark = mark_of(shed.pid)
        assert mark is not None
        guard.hold(label(reservation_id), time.monotonic() + SOON)
        guard.add_mark(reservation_id, mark)
        exit_code = shed.wait(30)
    finally:
        shed.kill()
        shed.wait()

    assert exit_code == -9


def test_killed_guard_restarts_with_all_holds(guard: LeaseGuard) -> None:
    first, second = uuid4(), uuid4()
    with workload(first) as held:
        guard.hold(label(first), time.monotonic() + 2 * SOON)
        process = guard._process  # noqa: SLF001  # killed from outside
        assert process is not None
        process.kill()
        process.wait()
        guard.hold(label(second), time.monotonic() + 60)
        exit_code = held.wait(30)

    assert exit_code == -9


def test_slow_guard_without_holds_is_ended(guard: LeaseGuard) -> None:
    reservation_id = uuid4()
    guard.hold(label(reservation_id), time.monotonic() + 60)
    process = guard._process  # noqa: SLF001  # watched from outside
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    guard.release(reservation_id)

    guard.close()

    assert process.returncode == -9


@pytest.mark.long
def test_guard_of_gone_executor_kills_in_time() -> None:
    reservation_id = uuid4()
    guard = LeaseGuard()
    with workload(reservation_id) as left:
        guard.hold(label(reservation_id), time.monotonic() + SOON)
        process = guard._process  # noqa: SLF001  # watched until it has ended
        assert process is not None
        guard.close()
        exit_code = left.wait(30)
        process.wait(QUIET_SECONDS + 5)

    assert exit_code == -9


def test_overdue_hold_cannot_be_renewed() -> None:
    reservation_id = uuid4()
    guard = HeldWorkloads()
    hold = Hold(label=label(reservation_id), kill_at=10.0)
    guard.apply(note(hold))
    assert guard.next_at() == 10.0

    guard.kill(10.0)
    guard.apply(note(Hold(label=label(reservation_id), kill_at=99.0)))
    guard.apply(b"nonsense")
    later = guard.next_at()
    guard.kill(10.0 + QUIET_SECONDS)

    assert later is not None
    assert later < 99.0
    assert guard.next_at() is None


def test_what_is_released_is_no_longer_looked_for() -> None:
    reservation_id = uuid4()
    guard = HeldWorkloads()
    guard.apply(note(Hold(label=label(reservation_id), kill_at=10.0)))
    guard.kill(10.0)
    guard.apply(note(Release(reservation_id=reservation_id)))

    assert guard.next_at() is None


def test_guard_imports_only_what_it_uses() -> None:
    """One runs beside every executor, and each is started anew with it."""
    probe = "import sys, services.executor.guard.process as _; print(*sys.modules, sep='\\n')"

    ended = subprocess.run(
        (sys.executable, "-c", probe), capture_output=True, text=True, check=True
    )

    assert {"asyncio", "logging", "rich", "structlog"}.isdisjoint(ended.stdout.split())
