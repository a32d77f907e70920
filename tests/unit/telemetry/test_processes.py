"""What is known of a process, as long as it is the same process."""

import os
import subprocess
from subprocess import PIPE
from uuid import UUID

import pytest

from services.telemetry import processes
from services.telemetry.processes import ProcessTable

RESERVATION = UUID("0191d2a0-0000-7000-8000-000000000001")


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_a_process_is_looked_at_once_and_forgotten_when_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, *, has_descriptors: bool
) -> None:
    if not has_descriptors:
        monkeypatch.delattr(os, "pidfd_open")
    table = ProcessTable()
    environ = {**os.environ, "GPUSTEWARD_RESERVATION": str(RESERVATION)}
    with subprocess.Popen(["cat"], env=environ, stdin=PIPE, stdout=PIPE, bufsize=0) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        # What it sends back shows that it runs: its environment is not there before.
        worker.stdin.write(b"!")
        worker.stdout.read(1)
        first = table.facts(worker.pid)
        reads: list[str] = []
        monkeypatch.setattr(processes, "_name", lambda _: reads.append("name"))
        table.forget_ended([worker.pid])
        again = table.facts(worker.pid)
        worker.kill()
    table.forget_ended([worker.pid])

    assert (first.name, first.reservation_id) == ("cat", RESERVATION)
    assert again == first
    assert reads == []
    assert table.facts(worker.pid).name is None


def test_a_number_without_a_process_is_unknown_and_not_remembered() -> None:
    assert ProcessTable().facts((1 << 22) + 1) == (None, None, None)
