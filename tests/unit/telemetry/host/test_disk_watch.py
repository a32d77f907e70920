"""A full disk is an event of its node, once, and so is its end."""

import asyncio
from pathlib import Path

import pytest

from schemas.telemetry.readings import HealthKind
from services.telemetry import disk_watch
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.disks.small_disk import every_disk_full
from tests.support.worlds.telemetry_node import FakeSource, Node


async def test_disk_filling_and_freeing_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_watch, "CHECK_SECONDS", 0.001)
    node = Node(FakeSource())

    async def reported(kinds: list[HealthKind]) -> bool:
        return [event.change for event in await node.changes()] == kinds

    watching = asyncio.create_task(disk_watch.watch_disk(tmp_path, node.publisher))
    try:
        with every_disk_full():
            await eventually(lambda: reported([HealthKind.DISK_FULL]), what="the full disk")
        both = [HealthKind.DISK_FULL, HealthKind.DISK_HAS_ROOM]
        await eventually(lambda: reported(both), what="the room")
    finally:
        await cancel_and_wait(watching)

    full, _ = await node.changes()
    assert full.device_uuid is None
    assert "MB are free below" in full.detail
