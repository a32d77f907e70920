"""The engine under random events; the long form takes more than 100,000 of them."""

import sys
import time

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine_machine import EngineMachine

STEPS_PER_RUN = 100
SHORT_RUNS = 8
LONG_STEPS = 100_000
LONG_RUNS = 1_700  # some end early: about 68 steps each


def run(runs: int, steps: int = STEPS_PER_RUN) -> int:
    """Carry out so many random histories; how many steps were carried out."""
    before = EngineMachine.steps.total()
    run_state_machine_as_test(
        EngineMachine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=True,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    return EngineMachine.steps.total() - before


def test_no_random_history_makes_the_engine_break_a_rule() -> None:
    assert run(SHORT_RUNS) >= SHORT_RUNS * STEPS_PER_RUN / 2


@pytest.mark.long
@pytest.mark.timeout(600)
def test_100_000_random_steps_make_the_engine_break_no_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = time.process_time()
    before = EngineMachine.steps.copy()

    steps = run(LONG_RUNS)

    taken = EngineMachine.steps - before
    lines = "".join(f"  {name:<20} {count:>7}\n" for name, count in sorted(taken.items()))
    seconds = time.process_time() - began
    with capsys.disabled():
        sys.stdout.write(f"\n{lines}  {'steps':<20} {steps:>7} in {seconds:.0f} s of CPU\n")
    assert steps >= LONG_STEPS
