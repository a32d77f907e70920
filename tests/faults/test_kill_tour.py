"""The kill tour: everything that runs suffers at once, and nothing is lost, doubled or left."""

import json
import random

import pytest

from shared.testing import short_directory
from tests.support.processes.kill_tour import KillTour

FAULT_SECONDS = 90.0


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_kills_grant_nothing_twice_and_lose_nothing() -> None:
    with short_directory() as directory:
        found = await KillTour(directory, random.Random(1), FAULT_SECONDS).run()

    print(json.dumps(found.counts()))  # noqa: T201  # the counts are what a run is kept for
    assert found.violations == []
    assert found.operations > 0
