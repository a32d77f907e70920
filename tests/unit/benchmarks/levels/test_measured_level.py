"""The figures of a level out of its requests."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.task.benchmark import LevelMark
from shared.benchmarks.arrivals import Load
from shared.benchmarks.levels.measured_level import (
    LevelOutcome,
    Record,
    make_measured_level,
    with_client_lag,
)
from shared.benchmarks.metrics import FailedRequest, RequestSample, level_result
from tests.support.known_servers.known_engine import make_spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = 5.0
CLOSED, OPEN = Load(2), Load(2, "constant(2)")
ANSWERED = RequestSample(ttft=0.1, e2e_latency=1.0, num_input_tokens=1, num_output_tokens=2)


def sent(*seconds: float, late: float = 0.0) -> list[Record]:
    """Requests that took a second each, sent that long after the start."""
    return [Record(STARTED + at, STARTED + at + 1.0, late, ANSWERED) for at in seconds]


def slowing() -> list[Record]:
    """The last takes three times as long as the first."""
    answers = (replace(ANSWERED, e2e_latency=1.0 + n / 50) for n in range(100))
    return [
        Record(STARTED + n, STARTED + n + answer.e2e_latency, 0.0, answer)
        for n, answer in enumerate(answers)
    ]


def made(records: list[Record], **overrides: Any) -> LevelOutcome:
    given: dict[str, Any] = {
        "load": CLOSED,
        "records": records,
        "lags": [0.0],
        "started_at": NOW,
        "started": STARTED,
        "window_ends": None,
        "in_flight_mean": 2.0,
        "rate_per_s": 2.0,
        "sent_in_all": len(records),
    }
    return LevelOutcome(**given | overrides)


@pytest.mark.parametrize(
    ("outcome", "warmup", "seconds"),
    [
        pytest.param(made(sent(0, 0.5, 1)), 0, 2.0, id="until the last has ended"),
        pytest.param(made(sent(0, 0.5, 1), window_ends=9.0), 3, 4.0, id="the window of a loop"),
        pytest.param(made(sent(0, 0.5, 1)), 3, 2.0, id="a loop without a window"),
        pytest.param(
            made(sent(0, 0.5, 1), window_ends=9.0), 0, 2.0, id="a loop that ends with its requests"
        ),
        pytest.param(
            made(sent(0.25), load=OPEN, window_ends=9.0), 3, 1.25, id="one that came in a window"
        ),
        pytest.param(
            made(sent(0, 0.5, 1), load=OPEN, window_ends=9.0), 3, 1.5, id="by ends where they come"
        ),
        pytest.param(made(sent(0.25), load=OPEN), 0, 1.25, id="one that came"),
        pytest.param(made(sent(0, 0), load=OPEN), 0, 1.0, id="all that came ended at once"),
        pytest.param(made([], window_ends=9.0), 0, 4.0, id="nothing ended in the window"),
        pytest.param(made([]), 0, 0.0, id="nothing was sent"),
    ],
)
def test_level_lasts_until_its_requests_end(
    outcome: LevelOutcome, warmup: int, seconds: float
) -> None:
    found = make_measured_level("D(1,2)", outcome, make_spec(warmup_requests=warmup))

    assert found.started_at == NOW
    assert found.run_duration == pytest.approx(seconds)
    assert found.num_requests == len(outcome.records)
    assert found.steadiness is not None
    assert found.steadiness.discarded_requests == 0


def test_what_failed_is_counted_by_its_code() -> None:
    failed = [
        Record(STARTED, STARTED + 0.1, 0.0, FailedRequest(code=code)) for code in ("500", "x")
    ]

    found = make_measured_level("D(1,2)", made([*failed, *failed[:1], *sent(0)]), make_spec())

    assert (found.num_completed_requests, found.num_error_requests) == (1, 3)
    assert found.error_codes_frequency == {"500": 2, "x": 1}


@pytest.mark.parametrize(
    ("outcome", "marks"),
    [
        pytest.param(made(sent(0, 0)), (), id="nothing odd"),
        pytest.param(
            made(sent(0, 0), lags=[0.0051]), (LevelMark.CLIENT_LIMITED,), id="slow client"
        ),
        pytest.param(made(sent(0, 0), lags=[0.0049]), (), id="quick enough a client"),
        pytest.param(made(sent(0, 0), lags=[]), (), id="nothing known of the client"),
        pytest.param(made(sent(0, 0, late=0.0051), load=OPEN), (LevelMark.SENT_LATE,), id="late"),
        pytest.param(made(sent(0, 0, late=0.0051)), (), id="a loop is never late"),
        pytest.param(
            made(sent(0, 0), in_flight_mean=4.0), (LevelMark.LITTLES_LAW,), id="lost some"
        ),
        pytest.param(made(sent(0, 0), in_flight_mean=None), (), id="not counted"),
        pytest.param(
            made(slowing(), in_flight_mean=None), (LevelMark.NOT_STEADY,), id="slower and slower"
        ),
    ],
)
def test_what_is_odd_about_a_level_is_marked(
    outcome: LevelOutcome, marks: tuple[LevelMark, ...]
) -> None:
    assert make_measured_level("D(1,2)", outcome, make_spec()).marks == marks


def test_transient_requests_are_left_out() -> None:
    slow = replace(ANSWERED, e2e_latency=10.0)
    start = [Record(STARTED + n / 10, STARTED + n / 10 + 10, 0.0, slow) for n in range(20)]

    found = make_measured_level("D(1,2)", made([*start, *sent(*range(20, 120))]), make_spec())

    assert found.steadiness is not None
    left_out = found.steadiness.discarded_requests
    assert len(start) <= left_out < len(start) + 10
    assert (found.started_at - NOW).total_seconds() == pytest.approx(left_out)
    assert found.num_requests == 120 - left_out


@pytest.mark.parametrize(("lag_seconds", "is_marked"), [(0.001, False), (0.02, True)])
def test_another_process_is_late_where_this_one_is(lag_seconds: float, is_marked: bool) -> None:
    samples = [
        RequestSample(ttft=0.5, e2e_latency=1.0, num_input_tokens=9, num_output_tokens=9)
        for _ in range(10)
    ]
    level = level_result(
        scenario="D(9,9)",
        num_concurrency=1,
        started_at=NOW,
        run_duration=10.0,
        samples=samples,
        error_codes={},
    )

    late = with_client_lag(level, [lag_seconds] * 100)

    assert (LevelMark.CLIENT_LIMITED in late.marks) is is_marked
    assert late.client_lag_p99_seconds == pytest.approx(2 * lag_seconds)
    assert with_client_lag(level, []) == level
