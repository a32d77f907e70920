"""What clients were told, what the ledger wrote and what really ran, compared after random faults.

`GPUSTEWARD_HISTORY_SEEDS=5` runs one seed again, `=1,2,3` several;
`GPUSTEWARD_HISTORY_SECONDS=600` makes each of them last longer.
"""

import os
import sys

import pytest

from tests.support.history.partitions import PARTITIONS
from tests.support.history.run import LONGEST, run

SEEDS = [int(seed) for seed in os.environ.get("GPUSTEWARD_HISTORY_SEEDS", "1,2").split(",")]
SECONDS = float(os.environ.get("GPUSTEWARD_HISTORY_SECONDS", "12"))
FEWEST_GRANTS = 10
FEWEST_RUNS = 2
TIMEOUT_SECONDS = SECONDS * LONGEST + 240


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_SECONDS)
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_fault_gives_one_device_to_two_holders(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Processes killed and stopped, the bus emptied, Postgres restarted, messages late, twice and
    out of order; every other seed also moves the database's clock.
    """
    outcome = await run(seed, SECONDS, fewest_grants=FEWEST_GRANTS, clock_jumps=seed % 2 == 0)

    with capsys.disabled():
        sys.stdout.write(f"\n{outcome.table()}")
    assert outcome.violations == []
    assert outcome.grants >= FEWEST_GRANTS
    assert sum(outcome.faults.values()) >= SECONDS / 3


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_SECONDS)
async def test_faults_give_no_device_two_holders(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The real agent and executor with simulated GPUs and engines: what runs is read from /proc."""
    outcome = await run(SEEDS[0] + 100, SECONDS, fewest_grants=2 * FEWEST_RUNS, with_real_node=True)

    with capsys.disabled():
        sys.stdout.write(f"\n{outcome.table()}")
    assert outcome.violations == []
    assert outcome.operations["runs begun"] >= FEWEST_RUNS


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_partitions_give_no_device_two_holders(capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty: nodes and schedulers that hear and are not heard, a scheduler that Postgres alone is
    cut off from, a bus that falls apart into one server and two.
    """
    outcome = await run(SEEDS[0], SECONDS, fewest_grants=FEWEST_GRANTS, with_partitions=True)

    with capsys.disabled():
        sys.stdout.write(f"\n{outcome.table()}")
    assert outcome.violations == []
    partitions = [name for name in outcome.faults if name.startswith("partition ")]
    assert len(partitions) == len(PARTITIONS) == 20
