"""The kill tour: everything that runs suffers at once, and nothing is lost, doubled or left."""

import json
import random

import pytest

from shared.testing import short_directory
from tests.support.processes.kill_tour import KillTour

FAULT_SECONDS = 60.0


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_nothing_is_granted_twice_lost_or_left_behind_whatever_is_killed() -> None:
    with short_directory() as directory:
        found = await KillTour(directory, random.Random(1), FAULT_SECONDS).run()

    print(json.dumps(found.counts()))  # noqa: T201  # the counts are what a run is kept for
    assert found.violations == []
    assert found.operations > 0
