"""When the engine that answers questions is thrown away."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from services.scheduler import present
from services.scheduler.domain.policy import Policy
from services.scheduler.present import Present

START = datetime(2026, 1, 1, tzinfo=UTC)


class Ledger:
    """A fake of the ledger behind `LiveEngine`: tells the time, counts the engines built."""

    def __init__(self) -> None:
        self.now = START
        self.loads = 0

    async def load(self, *_: Any) -> Any:
        self.loads += 1
        journal = SimpleNamespace(start_anew=lambda: None)
        return SimpleNamespace(
            catch_up=self.catch_up, refresh=lambda _changed: None, journal=journal, engine=None
        )

    async def catch_up(self) -> Any:
        return SimpleNamespace(now=self.now)


async def test_a_jump_of_the_database_s_clock_builds_the_engine_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger()
    monkeypatch.setattr(present, "LiveEngine", ledger)
    asked = Present(cast(Any, None), cast(Any, None), Policy(), clock=lambda: 100.0)
    loads = []

    for jump in (timedelta(0), timedelta(seconds=5), timedelta(minutes=5), -timedelta(minutes=5)):
        ledger.now += jump
        async with asked.moment() as moment:
            assert moment.now == ledger.now
        loads.append(ledger.loads)

    assert loads == [1, 1, 2, 3]
