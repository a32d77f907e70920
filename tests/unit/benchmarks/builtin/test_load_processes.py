"""A level that several processes make together."""

import random
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkSpec, LevelMark, LevelResult
from shared.benchmarks.arrivals import Load, offsets
from shared.benchmarks.builtin.load_processes import Crew, merge_outcomes, parts
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.levels.measured_level import LevelOutcome, Record
from shared.benchmarks.metrics import RequestSample

SCENARIO = "D(100,50)"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SAMPLE = RequestSample(ttft=0.1, e2e_latency=1.0, num_input_tokens=1, num_output_tokens=2)


def make_crew(most: int = 8, ceiling: float = 1000.0) -> Crew:
    return Crew(ChatServer(base_url="http://127.0.0.1:1", model_name="m"), most, ceiling)


def make_level(tokens_per_s: float, concurrency: int, *marks: LevelMark) -> LevelResult:
    return LevelResult(
        scenario=SCENARIO,
        num_concurrency=concurrency,
        started_at=NOW,
        finished_at=NOW,
        run_duration=1.0,
        num_requests=1,
        num_completed_requests=1,
        num_error_requests=0,
        error_rate=0.0,
        mean_output_throughput_tokens_per_s=tokens_per_s,
        marks=marks,
    )


def make_outcome(started: float, ends: float, *sent: float, **overrides: Any) -> LevelOutcome:
    given: dict[str, Any] = {
        "load": Load(1),
        "records": [Record(each, each + 1, 0.0, SAMPLE) for each in sent],
        "lags": [0.001],
        "started_at": NOW,
        "started": started,
        "window_ends": ends,
        "in_flight_mean": 2.0,
        "rate_per_s": 3.0,
        "sent_in_all": len(sent),
    }
    return LevelOutcome(**given | overrides)


@pytest.mark.parametrize("text", ["poisson(20)", "constant(20)", "burst(20,3)", "trace"])
def test_parts_have_the_arrivals_of_one_process(text: str) -> None:
    trace = [float(number) ** 1.1 for number in range(90)]

    whole = list(islice(offsets(text, trace, random.Random(5)), 90))
    shared = [
        each
        for number in range(3)
        for each in islice(offsets(text, trace, random.Random(5)), number, 90, 3)
    ]

    assert sorted(shared) == whole


def test_requests_at_once_and_counts_are_shared_out() -> None:
    spec = BenchmarkSpec(max_requests_per_level=100, warmup_requests=1)

    found = parts(Load(8), spec, 3)

    assert [load.concurrency for load, _ in found] == [3, 3, 2]
    assert {own.max_requests_per_level for _, own in found} == {34}
    assert {own.warmup_requests for _, own in found} == {1}


def test_common_time_of_all_parts_counts() -> None:
    one, other = make_outcome(10.0, 20.0, 10.0, 12.0, 19.0), make_outcome(11.0, 18.0, 11.0, 17.0)

    both = merge_outcomes(Load(2), [one, other])

    assert (both.started, both.window_ends) == (11.0, 18.0)
    assert sorted(record.sent for record in both.records) == [11.0, 12.0, 17.0]
    assert (both.in_flight_mean, both.rate_per_s, both.sent_in_all) == (4.0, 6.0, 5)
    assert len(both.lags) == 2


def test_trace_counts_as_a_whole() -> None:
    one, other = make_outcome(10.0, 20.0, 10.0, 19.5), make_outcome(11.0, 18.0, 11.0)

    both = merge_outcomes(Load(4, "trace"), [one, other])

    assert (both.started, both.window_ends) == (10.0, 20.0)
    assert len(both.records) == 3


@pytest.mark.parametrize(
    ("load", "want"),
    [
        pytest.param(Load(4096, "poisson(5)"), 1, id="250 of 500 tokens/s"),
        pytest.param(Load(4096, "constant(25)"), 3, id="1250 tokens/s"),
        pytest.param(Load(4096, "burst(1000,10)"), 8, id="no more than there are"),
        pytest.param(Load(512), 1, id="a closed loop of which nothing is known"),
        pytest.param(Load(4096, "trace"), 1, id="a trace"),
    ],
)
def test_request_tells_its_process_count(load: Load, want: int) -> None:
    assert make_crew().count_for(SCENARIO, load) == want


def test_each_turn_of_a_conversation_is_a_request() -> None:
    assert make_crew().count_for(SCENARIO, Load(4096, "constant(5)"), turns=5) == 3


def test_a_level_tells_what_the_next_one_takes() -> None:
    crew = make_crew()

    assert crew.count_after(make_level(200.0, 4), Load(4), 1) == 1
    assert crew.count_for(SCENARIO, Load(32)) == 4
    assert crew.count_for("D(1,1)", Load(32)) == 1


def test_limited_client_is_doubled() -> None:
    limited = make_level(10.0, 32, LevelMark.CLIENT_LIMITED)

    assert make_crew().count_after(limited, Load(32), 2) == 4
    assert make_crew(most=2).count_after(limited, Load(32), 2) == 2
    assert make_crew().count_after(limited, Load(1), 1) == 1
