"""Which engines count as having run at once."""

import os
import subprocess

import pytest

from shared.labels import INSTALLATION_VARIABLE, RESERVATION_VARIABLE
from tests.support.processes.engine_sightings import EngineWatch, Sighting, overlaps


@pytest.mark.parametrize(
    ("other", "want"),
    [
        pytest.param(Sighting("b", ("GPU-1",), 15, 25), 1, id="while the first ran"),
        pytest.param(Sighting("b", ("GPU-1",), 21, 25), 0, id="after it"),
        pytest.param(Sighting("b", ("GPU-2",), 15, 25), 0, id="on another device"),
        pytest.param(Sighting("a", ("GPU-1",), 15, 25), 0, id="of the same reservation"),
    ],
)
def test_two_holders_at_once_overlap(other: Sighting, want: int) -> None:
    first = Sighting("a", ("GPU-0", "GPU-1"), 10, 20)

    assert len(overlaps([first, other])) == want


def test_ended_unreaped_process_is_no_engine() -> None:
    watch = EngineWatch("one")
    labels = {INSTALLATION_VARIABLE: "one", RESERVATION_VARIABLE: "a", "CUDA_VISIBLE_DEVICES": "G"}
    with subprocess.Popen(["sleep", "60"], env=labels) as engine:
        while not watch.look():
            pass
        engine.kill()
        os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)
        left = watch.look()

    assert left == 0
    assert [each.reservation_id for each in watch.sightings] == ["a"]
