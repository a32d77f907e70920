"""The engine under random events; the long form takes more than 100,000 of them."""

import os
import subprocess
import sys
import time

import msgspec
import pytest

from tests.engine_machine import EngineMachine
from tests.engine_replay import Recorded
from tests.engine_walk import check

SHORT_RUNS = 200
SHORT_STEPS = 12
LONG_RUNS = 1_300
LONG_STEPS = 100
ENOUGH_STEPS = 100_000


@pytest.fixture(scope="module")
def histories() -> list[EngineMachine]:
    """Carried out, and no rule was broken."""
    return [check(seed, SHORT_STEPS) for seed in range(SHORT_RUNS)]


def test_no_random_history_makes_the_engine_break_a_rule(histories: list[EngineMachine]) -> None:
    assert len(histories) == SHORT_RUNS
    assert sum(len(machine.log) for machine in histories) >= SHORT_RUNS * SHORT_STEPS


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_engine_decides_the_same_whatever_the_hashes_of_a_process_are(
    histories: list[EngineMachine], hash_seed: str
) -> None:
    recorded = [Recorded(policy=machine.policy, log=machine.log) for machine in histories]

    told = subprocess.run(
        [sys.executable, "-m", "tests.engine_replay"],
        input=msgspec.json.encode(recorded),
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        timeout=60,
    )

    assert told.stdout.decode() == f"{SHORT_RUNS} histories, otherwise: []\n"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_100_000_random_steps_make_the_engine_break_no_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = time.process_time()
    before = EngineMachine.steps.copy()

    for seed in range(SHORT_RUNS, SHORT_RUNS + LONG_RUNS):
        check(seed, LONG_STEPS)

    taken = EngineMachine.steps - before
    steps = taken.total()
    lines = "".join(f"  {name:<20} {count:>7}\n" for name, count in sorted(taken.items()))
    seconds = time.process_time() - began
    with capsys.disabled():
        sys.stdout.write(f"\n{lines}  {'steps':<20} {steps:>7} in {seconds:.0f} s of CPU\n")
    assert steps >= ENOUGH_STEPS
