"""A full disk ends nothing, and everything resumes by itself when there is room again."""

import sys

import pytest

from shared.testing import short_directory
from tests.support.disks.full_disk import DISK_MB, run_full_disk_story
from tests.support.disks.small_disk import small_disk


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_platform_outlives_a_full_disk() -> None:
    with short_directory() as directory, small_disk(directory / "disk", DISK_MB) as disk:
        report = await run_full_disk_story(disk)

    sys.stdout.write(f"{report.as_json()}\n")
    assert report.violations == []
