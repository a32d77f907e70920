"""Ctrl-C ends what waits or follows, whoever reads what it prints, and from its first moment on."""

import random
from pathlib import Path

import pytest

from tests.support.processes.followers import (
    FOLLOWERS,
    Interrupted,
    interrupted,
    interrupted_early,
    summary,
)


@pytest.mark.parametrize("name", ["logs", "run"])
async def test_follower_without_reader_ends_at_once(name: str, tmp_path: Path) -> None:
    ended = await interrupted(name, tmp_path, random.Random(name))

    assert ended.is_well, ended


async def test_interrupt_during_import_has_no_traceback(tmp_path: Path) -> None:
    ended = await interrupted_early("reserve", tmp_path, random.Random(2))

    assert ended.is_well, ended


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_every_follower_ends_within_2_s(tmp_path: Path) -> None:
    dice = random.Random(11)
    each = [
        await interrupted(name, tmp_path, dice, is_read=is_read)
        for name in FOLLOWERS
        for is_read in (False, True, False)
    ]

    assert_all_well(each)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_interrupt_during_start_has_no_traceback(tmp_path: Path) -> None:
    dice = random.Random(12)
    each = [await interrupted_early("reserve", tmp_path, dice) for _ in range(20)]

    assert_all_well(each)


def assert_all_well(each: list[Interrupted]) -> None:
    print(summary(each))  # noqa: T201  # the counts are what a run is kept for
    assert [one for one in each if not one.is_well] == []
