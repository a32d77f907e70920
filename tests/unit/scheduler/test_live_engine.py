"""When an engine no longer follows the ledger's changes but is loaded anew."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from services.scheduler.domain.placement.policy import Policy
from services.scheduler.leader import live_engine
from services.scheduler.leader.live_engine import LONGEST_GAP_SECONDS, LiveEngine
from services.scheduler.ledger.change_feed import Changes, Rows

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeLedger:
    """A fake of the database and of its change feed: has the time, counts the loads."""

    def __init__(self) -> None:
        self.now = START
        self.loads = 0

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    statements = transaction

    async def read_all(self, _: object) -> tuple[str, datetime, Rows]:
        self.loads += 1
        return "0", self.now, Rows()

    async def poll(self, *_: object) -> Changes:
        return Changes(
            snapshot="0",
            now=self.now,
            reservation_ids=[],
            device_nos=[],
            node_ids=[],
            expired=[],
            preempted=[],
            next_end_at=None,
        )

    async def read(self, *_: object) -> Rows:
        return Rows()


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
        pytest.param(LONGEST_GAP_SECONDS, LONGEST_GAP_SECONDS, False, id="the longest gap"),
        pytest.param(LONGEST_GAP_SECONDS + 1, 0, True, id="the database's clock jumps ahead"),
        pytest.param(-LONGEST_GAP_SECONDS - 1, 0, True, id="the database's clock jumps back"),
        pytest.param(0, LONGEST_GAP_SECONDS + 1, True, id="a pause that its clock does not show"),
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
