"""The engine under random events; `GPUSTEWARD_RANDOM_STEPS=100000` makes the long form as long."""

import os
import subprocess
import sys
import time
from collections import Counter
from itertools import count

import msgspec
import pytest

from services.scheduler.domain.indexes import node_views, room_groups
from services.scheduler.domain.model import state
from services.scheduler.domain.placement import density
from services.scheduler.domain.queue import (
    availability_timeline,
    backfill,
    deadlines,
    placement_search,
)
from tests.support.decision_engine.machine import EngineMachine
from tests.support.decision_engine.replay import Recorded
from tests.support.decision_engine.walk import check

SHORT_RUNS = 60
SHORT_STEPS = 12
LONG_STEPS = 100
ENOUGH_STEPS = int(os.environ.get("GPUSTEWARD_RANDOM_STEPS", "20000"))
TIMEOUT_SECONDS = 120 + ENOUGH_STEPS / 50
STEPS_WITH_LITTLE_KEPT = ENOUGH_STEPS // 4


@pytest.fixture(scope="module")
def histories() -> list[EngineMachine]:
    """Carried out, and no rule was broken."""
    return [check(seed, SHORT_STEPS) for seed in range(SHORT_RUNS)]


def test_random_history_breaks_no_rule(histories: list[EngineMachine]) -> None:
    assert len(histories) == SHORT_RUNS
    assert sum(len(machine.log) for machine in histories) >= SHORT_RUNS * SHORT_STEPS


@pytest.mark.parametrize("hash_seed", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_decisions_do_not_depend_on_hash_seed(
    histories: list[EngineMachine], hash_seed: str
) -> None:
    recorded = [Recorded(policy=machine.policy, log=machine.log) for machine in histories]

    told = subprocess.run(
        [sys.executable, "-m", "tests.support.decision_engine.replay"],
        input=msgspec.json.encode(recorded),
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        timeout=60,
    )

    assert told.stdout.decode() == f"{SHORT_RUNS} histories, otherwise: []\n"


def walk(first: int, steps: int) -> Counter[str]:
    """Histories from this one on until so many steps were taken; how many of which."""
    before = EngineMachine.steps.copy()
    seeds = count(first)
    while (EngineMachine.steps - before).total() < steps:
        check(next(seeds), LONG_STEPS)
    return EngineMachine.steps - before


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_random_history_with_small_caches_is_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is kept is bounded, by more than such small fleets ever need."""
    for module, name, kept in (
        (backfill, "MAX_OPTIMISTIC_NODES", 1),
        (backfill, "MAX_TIMELINES", 1),
        (placement_search, "MAX_NODE_INDEXES", 1),
        (placement_search, "MAX_FILTER_INDEXES", 1),
        (node_views, "LEAST_LOG", 2),
        (availability_timeline, "SPARE_ENTRIES", 0),
        (room_groups, "SPARE_ENTRIES", 0),
        (density, "MAX_KNOWN", 1),
        (deadlines, "SPARE_DEADLINES", 0),
        (state, "SPARE_ENDS", 0),
    ):
        monkeypatch.setattr(module, name, kept)

    assert walk(0, STEPS_WITH_LITTLE_KEPT).total() >= STEPS_WITH_LITTLE_KEPT


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_thousands_of_random_steps_break_no_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = time.process_time()

    taken = walk(SHORT_RUNS, ENOUGH_STEPS)

    steps = taken.total()
    lines = "".join(f"  {name:<20} {count:>7}\n" for name, count in sorted(taken.items()))
    seconds = time.process_time() - began
    with capsys.disabled():
        sys.stdout.write(f"\n{lines}  {'steps':<20} {steps:>7} in {seconds:.0f} s of CPU\n")
    assert steps >= ENOUGH_STEPS
