"""Which processes of a host an executor counts as running under a reservation."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from services.executor.host.processes import LabelledProcesses, find_labelled_processes
from shared.ids import new_id

MINE = "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b"


@contextmanager
def labelled(**variables: str) -> Iterator[int]:
    with subprocess.Popen(["/bin/sleep", "60"], env={"PATH": os.defpath, **variables}) as process:
        try:
            while not Path(f"/proc/{process.pid}/environ").read_bytes():
                pass  # its program has begun, and the kernel has yet to hand it its environment
            yield process.pid
        finally:
            process.kill()


def under(reservation_id: UUID) -> list[LabelledProcesses]:
    return [w for w in find_labelled_processes("ours") if w.reservation_id == reservation_id]


def test_workload_is_listed_with_epoch_and_processes() -> None:
    mine = new_id()
    label = {
        "GPUSTEWARD_RESERVATION": str(mine),
        "GPUSTEWARD_EPOCH": "7",
        "GPUSTEWARD_INSTALLATION": "ours",
    }

    with labelled(**label) as first, labelled(**label) as second:
        found = under(mine)

    assert found == [
        LabelledProcesses(
            reservation_id=mine,
            epoch=7,
            pids=tuple(sorted((first, second))),
            names_installation=True,
        )
    ]
    assert under(mine) == []


def test_workload_without_installation_is_listed() -> None:
    joined, theirs = new_id(), new_id()
    foreign = {"GPUSTEWARD_RESERVATION": str(theirs), "GPUSTEWARD_INSTALLATION": "theirs"}

    with labelled(GPUSTEWARD_RESERVATION=str(joined)), labelled(**foreign):
        (found,) = under(joined)
        assert under(theirs) == []

    assert (found.epoch, found.names_installation) == (None, False)


@pytest.mark.parametrize("label", ["x", MINE.upper(), f"{{{MINE}}}", f"urn:uuid:{MINE}"])
def test_malformed_reservation_label_is_ignored(label: str) -> None:
    with labelled(GPUSTEWARD_RESERVATION=label, GPUSTEWARD_EPOCH="x") as pid:
        assert all(pid not in workload.pids for workload in find_labelled_processes("ours"))


def test_oversized_epoch_hides_nothing() -> None:
    mine = new_id()

    for epoch in ("9" * 30, "9" * 5000):
        with labelled(GPUSTEWARD_RESERVATION=str(mine), GPUSTEWARD_EPOCH=epoch) as pid:
            (found,) = under(mine)

        assert (found.epoch, found.pids) == (None, (pid,))
