"""Reasons call reservations as people do."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import experiment_holder
from services.scheduler.domain.advice.holder_names import Holder, find_ids, with_names

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ID = UUID("019b8e50-7000-7000-8000-0123456789ab")
HELD = Reason(code=ReasonCode.HELD, message=f"GPU 0 on n1 is held by reservation {ID}")


@pytest.mark.parametrize(
    ("holder", "want"),
    [
        pytest.param(
            Holder(
                namespace="a",
                holder="exec/ada",
                requested_at=NOW - timedelta(hours=3),
                granted_at=NOW - timedelta(minutes=12),
            ),
            "exec/ada (reservation 0123456789ab, for 12 min)",
            id="one that holds for no known time",
        ),
        pytest.param(
            Holder(
                namespace="a",
                holder=experiment_holder(ID, "tuning", 3),
                requested_at=NOW,
                granted_at=NOW - timedelta(seconds=40),
                expected_end_at=NOW + timedelta(hours=2),
            ),
            "tuning#3 (reservation 0123456789ab, for 40 s, about 2 h more)",
            id="an experiment, with its expected end",
        ),
        pytest.param(
            Holder(
                namespace="a",
                holder="exec/ada",
                requested_at=NOW,
                granted_at=NOW - timedelta(minutes=1),
                expected_end_at=NOW,
            ),
            "exec/ada (reservation 0123456789ab, for 1 min)",
            id="one that has outlived its expectation",
        ),
        pytest.param(
            Holder(namespace="a", holder="", requested_at=NOW - timedelta(days=2)),
            "somebody (reservation 0123456789ab, queued for 2 d)",
            id="one that waits and has no name",
        ),
    ],
)
def test_a_reason_names_the_holder_and_how_long(holder: Holder, want: str) -> None:
    [reason] = with_names([HELD], {ID: holder}, NOW)

    assert reason.message == f"GPU 0 on n1 is held by {want}"


def test_unknown_reservations_keep_their_ids() -> None:
    assert find_ids([HELD, Reason(code=ReasonCode.NO_GPUS, message="no GPU")]) == {ID}
    assert with_names([HELD], {}, NOW) == (HELD,)


def test_who_is_in_another_namespace_is_not_said() -> None:
    holder = Holder(holder="exec/ada", namespace="a", requested_at=NOW, granted_at=NOW)

    [own] = with_names([HELD], {ID: holder}, NOW, {"a"})
    [foreign] = with_names([HELD], {ID: holder}, NOW, {"b"})

    assert own.message.endswith("by exec/ada (reservation 0123456789ab, for 0 s)")
    assert foreign.message.endswith("by another namespace (reservation 0123456789ab, for 0 s)")
