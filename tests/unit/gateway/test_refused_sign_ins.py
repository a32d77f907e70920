"""How refused sign-ins are counted."""

from datetime import UTC, datetime, timedelta

from services.gateway.domain.refused_sign_ins import (
    MAX_ROWS,
    RefusedSignIn,
    RefusedSignIns,
    minute_of,
)

NOW = datetime(2026, 11, 28, 12, 30, 41, 7, tzinfo=UTC)


def refused(number: int = 0, at: datetime = NOW) -> RefusedSignIn:
    return RefusedSignIn(at=minute_of(at), address=f"192.0.2.{number}", reason="unknown")


def test_same_address_and_reason_are_one_row() -> None:
    counts = RefusedSignIns()
    for path in ("/first", "/second", "/third"):
        counts.count(refused(), "GET", path)

    assert counts.take() == [(refused(), 3, "GET", "/first")]
    assert counts.take() == []
    assert refused().at == datetime(2026, 11, 28, 12, 30, tzinfo=UTC)


def test_minute_has_few_rows_however_often_taken() -> None:
    counts, rows, total = RefusedSignIns(), set(), 0
    for turn in range(10):
        for number in range(MAX_ROWS):
            counts.count(refused(turn * MAX_ROWS + number), "GET", "/")
        for row, times, *_ in counts.take():
            rows.add(row)
            total += times
    counts.count(refused(7_000, NOW + timedelta(minutes=1)), "GET", "/")

    assert len(rows) == MAX_ROWS + 1
    assert total == 10 * MAX_ROWS
    assert [row.address for row, *_ in counts.take()] == ["192.0.2.7000"]


def test_counts_that_were_not_stored_come_again() -> None:
    counts = RefusedSignIns()
    counts.count(refused(1), "GET", "/first")
    counts.put_back(counts.take())
    counts.count(refused(1), "GET", "/second")
    counts.count(refused(2), "GET", "/")

    assert counts.take() == [(refused(1), 2, "GET", "/first"), (refused(2), 1, "GET", "/")]
