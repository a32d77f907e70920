"""The kill tour at length, then a full disk.

`make bench NAME=faults`, about six minutes. The last line is one JSON object: `operations` (grants
given back, experiments ended, claims of the full disk held), `faults`, `violations` (double grants,
lost outcomes, leftovers, claims that did not hold), `leak_max_s` (the longest that a process ran or
a device stayed held after its reservation's end), `worst_gap_s` (the longest without a grant to any
client, or from the first free byte of the disk until everything answered). `seed` repeats the
order of the faults.
"""

import asyncio
import json
import random
import sys

import pytest

from shared.testing import short_directory
from tests.support.disks.full_disk import DISK_MB, FullDiskReport, run_full_disk_story
from tests.support.disks.small_disk import small_disk
from tests.support.processes.kill_tour import Findings, KillTour

FAULT_SECONDS = 180.0
FULL_SECONDS = 15.0


async def tour(seed: int) -> Findings:
    with short_directory() as directory:
        return await KillTour(directory, random.Random(seed), FAULT_SECONDS).run()


async def full_disk() -> FullDiskReport:
    with short_directory() as directory, small_disk(directory / "disk", DISK_MB) as disk:
        return await run_full_disk_story(disk, full_seconds=FULL_SECONDS)


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(10**6)
    killed = asyncio.run(tour(seed))
    for what, count in sorted(killed.faults.items()):
        print(f"{what:24} {count:4} times")
    try:
        filled = asyncio.run(full_disk())
    except pytest.skip.Exception as skipped:
        print(f"no full disk: {skipped}")
        filled = FullDiskReport()
    for violation in (*killed.violations, *filled.violations):
        print(violation)
    counts = killed.counts()
    both = {
        "operations": killed.operations + filled.operations,
        "faults": killed.faults.total() + filled.faults,
        "violations": len(killed.violations) + len(filled.violations),
        "leak_max_s": round(max(killed.leak_max_s, filled.leak_max_s), 1),
        "worst_gap_s": round(max(killed.worst_gap_s, filled.worst_gap_s), 1),
    }
    print(json.dumps({**both, **{k: v for k, v in counts.items() if k not in both}, "seed": seed}))


if __name__ == "__main__":
    main()
