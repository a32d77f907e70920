"""When an engine no longer follows the ledger's changes but is loaded anew."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from services.scheduler.domain.placement.policy import Policy
from services.scheduler.leader import live_engine
from services.scheduler.leader.live_engine import MAX_GAP_SECONDS, LiveEngine
from services.scheduler.ledger.change_feed import Changes, Position, Rows

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeLedger:
    """A fake of the database and of its change feed: has the time, counts the loads."""

    def __init__(self) -> None:
        self.now = START
        self.timeline = 1
        self.loads = 0

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    statements = transaction

    async def read_all(self, _: object) -> tuple[Position, Rows]:
        self.loads += 1
        return Position(snapshot="0", timeline=self.timeline, now=self.now), Rows()

    async def poll(self, *_: object) -> tuple[Changes, Rows]:
        changes = Changes(
            timeline=self.timeline,
            snapshot="0",
            now=self.now,
            device_nos=[],
            node_ids=[],
            expired=[],
            preempted=[],
            next_end_at=None,
        )
        return changes, Rows()


class NoSnapshots:
    """A fake of a reader of no devices."""

    def __init__(self) -> None:
        self.snapshots = self

    def request(self, _: object) -> None:
        """There is nothing to read."""


@pytest.mark.parametrize(
    ("database_seconds", "own_seconds", "is_loaded_anew"),
    [
        pytest.param(5, 5, False, id="polls that follow one another"),
        pytest.param(MAX_GAP_SECONDS, MAX_GAP_SECONDS, False, id="the longest gap"),
        pytest.param(MAX_GAP_SECONDS + 1, 0, True, id="the database's clock jumps ahead"),
        pytest.param(-MAX_GAP_SECONDS - 1, 0, True, id="the database's clock jumps back"),
        pytest.param(0, MAX_GAP_SECONDS + 1, True, id="a pause that its clock does not show"),
    ],
)
async def test_a_gap_by_either_clock_loads_the_engine_anew(
    monkeypatch: pytest.MonkeyPatch,
    database_seconds: float,
    own_seconds: float,
    *,
    is_loaded_anew: bool,
) -> None:
    ledger, seconds = FakeLedger(), [100.0]
    monkeypatch.setattr(live_engine, "change_feed", ledger)
    reader = cast(Any, NoSnapshots())
    live = LiveEngine(cast(Any, ledger), reader, Policy(), clock=lambda: seconds[0])
    await live.catch_up()

    ledger.now += timedelta(seconds=database_seconds)
    seconds[0] += own_seconds
    changes = await live.catch_up()

    assert changes.now == ledger.now
    assert ledger.loads == 1 + is_loaded_anew
    await live.catch_up()
    assert ledger.loads == 1 + is_loaded_anew


async def test_another_primary_loads_the_engine_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = FakeLedger()
    monkeypatch.setattr(live_engine, "change_feed", ledger)
    live = LiveEngine(cast(Any, ledger), cast(Any, NoSnapshots()), Policy())
    await live.catch_up()

    ledger.timeline += 1
    await live.catch_up()
    await live.catch_up()

    assert ledger.loads == 2
