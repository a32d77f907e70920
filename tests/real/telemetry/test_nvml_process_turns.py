"""How busy processes of several pods keep a GPU, over a fake library."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fakes.nvml import FakeNvml
from tests.support.paths import ROOT

PROGRAM = """
import json, pynvml
from schemas.telemetry.readings import GpuProcess
from services.telemetry.sources.nvml.child.processes import ProcessTurns
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
turns = ProcessTurns(handle)
processes = (GpuProcess(11, pod_uid="a"), GpuProcess(12, pod_uid="b"), GpuProcess(13))
for given in (processes, processes, processes[:1]):
    found = turns.add_to(given, busy)
    print(json.dumps([each.utilization_percent for each in found]))
"""


def told(fake: FakeNvml) -> list[list[float | None]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**fake.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("percents", "utilization", "want"),
    [
        pytest.param((30, 0), 30, [30.0, 0.0, 0.0], id="who is not listed rests"),
        pytest.param((30, 4_000), 30, [30.0, None, 0.0], id="more than there is"),
        pytest.param((0, 0), 0, [0.0, 0.0, 0.0], id="all rest"),
        pytest.param((0, 0), 50, [None, None, None], id="a busy GPU and nobody listed"),
    ],
)
def test_processes_of_several_pods_are_told_apart(
    tmp_path: Path, percents: tuple[int, int], utilization: int, want: list[float | None]
) -> None:
    fake = FakeNvml(tmp_path)
    fake.device(0).utilization = utilization
    for number, percent in enumerate(percents):
        fake.run(0, 11 + number, 512)
        fake.device(0).processes[number].utilization = percent

    # Twice the same, and one pod alone, which is not asked about.
    assert told(fake) == [want, want, [None]]
