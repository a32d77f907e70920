"""What AIPerf 0.13.0 was seen to write, as a level."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkSpec, LevelMark, LevelResult
from shared.benchmarks.aiperf.command import Plan
from shared.benchmarks.aiperf.results import (
    Ended,
    read_end,
    read_level,
    says_started,
)
from shared.benchmarks.arrivals import Load
from shared.benchmarks.levels.request_columns import unpack_requests
from shared.benchmarks.tools.adapter import DamagedResult
from shared.benchmarks.traffic import RequestSize

BEGAN = datetime(2026, 11, 23, 14, 0, tzinfo=UTC)
START_NS = 1_795_444_204_793_761_034
# As it was recorded, without the ids and without measures that nothing here reads.
LINE: dict[str, Any] = {
    "metadata": {
        "session_num": 0,
        "conversation_id": "e177f711-d3ce-4a8c-86fe-a4edf1306cbb",
        "turn_index": 0,
        "credit_issued_ns": START_NS - 884_430,
        "request_start_ns": START_NS,
        "request_ack_ns": START_NS + 87_628_355,
        "request_end_ns": START_NS + 269_081_035,
        "worker_id": "worker_93f08920",
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    },
    "metrics": {
        "request_latency": {"value": 268.94892999999996, "unit": "ms"},
        "output_sequence_length": {"value": 30, "unit": "tokens"},
        "inter_chunk_latency": {"value": [0.0, 3.784951, 71.84005] + 26 * [2.8], "unit": "ms"},
        "usage_completion_tokens": {"value": 30, "unit": "tokens"},
        "usage_prompt_tokens": {"value": 50, "unit": "tokens"},
        "time_to_first_token": {"value": 119.863236, "unit": "ms"},
        "http_req_connection_reused": {"value": 0, "unit": "ratio"},
    },
}
REFUSED = {"code": 503, "type": "Service Unavailable", "message": '{"error":"no"}'}
STARTED = (
    "14:30:04.604 NOTICE   Phase profiling (profiling) started | phase_index=0 | profiling_index=0"
    " | target: 200 requests (runner.py:660)"
)
CUT_OFF = (
    "14:36:32.145 NOTICE   Phase profiling (profiling) complete | completed=4, cancelled=2,"
    " errors=2 | sessions: completed=4, cancelled=2 | elapsed=7.00s | grace_period_timeout=True"
    " (runner.py:1226)"
)


def line(number: int = 0, **overrides: Any) -> bytes:  # any field of a line
    told = json.loads(json.dumps(LINE | overrides))
    told["metadata"]["session_num"] = number
    for name in ("credit_issued_ns", "request_start_ns", "request_end_ns"):
        if told["metadata"][name] is not None:
            told["metadata"][name] += number * 300_000_000
    return json.dumps(told).encode()


def make_plan(load: Load, requests: int, conversations: tuple[int, ...] = ()) -> Plan:
    size = RequestSize(num_input_tokens=50, num_output_tokens=30)
    return Plan(
        load=load,
        warmup_requests=0,
        requests=requests,
        sizes=(size,) * requests,
        seed=0,
        conversations=conversations,
    )


def read(*lines: bytes, cancelled: int = 0, load: Load | None = None) -> LevelResult:
    level, _ = read_level(
        lines,
        Ended(cancelled=cancelled, seconds=7.0),
        scenario="D(50,30)",
        plan=make_plan(load or Load(8), 10),
        spec=BenchmarkSpec(),
        began_at=BEGAN,
    )
    return level


def test_requests_become_a_level_by_our_own_rules() -> None:
    level = read(line(0), line(1))

    assert (level.num_requests, level.num_completed_requests, level.error_rate) == (2, 2, 0.0)
    assert level.started_at == datetime.fromtimestamp(START_NS / 1e9, UTC)
    assert level == read(line(1), line(0)), "in whatever order they ended"
    assert level.lateness_p99_seconds == pytest.approx(0.000884430)
    assert level.run_duration == pytest.approx(0.3 + 0.26894893)
    assert level.stats.ttft is not None
    assert level.stats.ttft.p99 == pytest.approx(0.119863236)
    assert level.stats.tpot is not None
    assert level.stats.tpot.mean == pytest.approx((0.26894893 - 0.119863236) / 29)
    assert level.mean_output_throughput_tokens_per_s == pytest.approx(60 / level.run_duration)
    assert not level.tokens_estimated
    assert level.requests is not None
    assert [row.num_input_tokens for row in unpack_requests(level.requests)] == [50, 50]


def test_what_failed_and_what_was_cut_off_is_counted() -> None:
    refused = line(1, metrics={}, error=REFUSED)
    connect = line(2, metrics={}, error={"type": "ClientConnectorError", "message": "refused"})

    level = read(line(0), refused, connect, cancelled=2)

    assert (level.num_requests, level.num_completed_requests, level.error_rate) == (5, 1, 0.8)
    assert level.error_codes_frequency == {"503": 1, "connect": 1, "unanswered": 2}
    assert level.run_duration == pytest.approx(0.6 + 0.269081035), "until the last has failed"


@pytest.mark.parametrize("name", ["time_to_first_token", "request_latency"])
def test_an_answer_without_its_times_is_no_answer(name: str) -> None:
    metrics = {each: told for each, told in LINE["metrics"].items() if each != name}

    assert read(line(metrics=metrics)).error_codes_frequency == {"malformed": 1}


def test_unanswered_level_keeps_its_time() -> None:
    level = read(cancelled=8)

    assert (level.num_requests, level.num_completed_requests) == (8, 0)
    assert (level.started_at, level.run_duration) == (BEGAN, 7.0)


def test_the_warm_up_counts_nowhere() -> None:
    warm = line(5, metadata=LINE["metadata"] | {"benchmark_phase": "warmup"})

    assert read(warm, line(0)).num_requests == 1


@pytest.mark.parametrize(
    ("untold", "tokens"),
    [
        ({"usage_prompt_tokens", "usage_completion_tokens"}, 4),
        ({"usage_prompt_tokens"}, 4),
        ({"usage_completion_tokens"}, 4),
        ({"usage_completion_tokens", "inter_chunk_latency"}, 1),
    ],
)
def test_tokens_are_counted_in_pieces_as_fallback(untold: set[str], tokens: int) -> None:
    all_metrics = LINE["metrics"] | {"inter_chunk_latency": {"value": [0.0, 3.8, 71.8]}}
    metrics = {name: told for name, told in all_metrics.items() if name not in untold}

    level = read(line(0, metrics=metrics))

    assert level.tokens_estimated
    assert level.requests is not None
    [row] = unpack_requests(level.requests)
    assert (row.num_input_tokens, row.num_output_tokens) == (50, tokens)


def test_late_requests_mark_a_timed_level() -> None:
    late = LINE["metadata"] | {"credit_issued_ns": START_NS - 50_000_000}

    level = read(line(0, metadata=late), load=Load(4096, "poisson(20)"))

    assert level.lateness_p99_seconds == pytest.approx(0.05)
    assert level.marks == (LevelMark.SENT_LATE,)


def test_early_requests_are_not_late() -> None:
    for issued in (START_NS + 50_000_000, None):
        early = LINE["metadata"] | {"credit_issued_ns": issued}

        level = read(line(metadata=early), load=Load(4096, "poisson(20)"))

        assert level.lateness_p99_seconds == 0.0


@pytest.mark.parametrize(
    "damaged",
    [b"", b"{}", b'{"metadata":', line(10), line(0).replace(b'"ms"', b'"s"')],
    ids=["empty", "another", "cut off", "a request too many", "another unit"],
)
def test_what_is_damaged_is_refused(damaged: bytes) -> None:
    with pytest.raises(DamagedResult):
        read(damaged)


def test_the_log_tells_how_far_it_is() -> None:
    assert says_started(STARTED)
    assert read_end(STARTED) is None
    assert read_end(CUT_OFF) == Ended(cancelled=2, seconds=7.0)
    assert read_end(CUT_OFF.replace("Phase profiling", "Phase warmup")) is None


def turn(conversation: int, index: int, start: float, *, prompt: int, cached: int) -> bytes:
    told = json.loads(line())
    told["metadata"] |= {
        "conversation_id": str(conversation),
        "x_correlation_id": f"run-of-{conversation}",
        "turn_index": index,
        "session_num": 99,
        "request_start_ns": START_NS + int(start * 1e9),
        "request_end_ns": START_NS + int((start + 0.3) * 1e9),
    }
    told["metrics"]["usage_prompt_tokens"]["value"] = prompt
    told["metrics"]["usage_prompt_cache_read_tokens"] = {"value": cached, "unit": "tokens"}
    return json.dumps(told).encode()


def test_turns_are_counted_with_their_history() -> None:
    # As they are written when they end, whichever began first.
    lines = [
        turn(1, 0, 0.1, prompt=50, cached=20),
        turn(0, 1, 0.4, prompt=130, cached=64),
        turn(0, 0, 0.0, prompt=50, cached=20),
    ]

    level, prompts = read_level(
        lines,
        Ended(cancelled=0, seconds=7.0),
        scenario="D(50,30)",
        plan=make_plan(Load(2), 4, conversations=(0, 2)),
        spec=BenchmarkSpec(turns=2),
        began_at=BEGAN,
    )

    told = [
        (each.turn, each.num_completed_requests, each.mean_input_tokens) for each in level.turns
    ]
    assert told == [(1, 2, 50.0), (2, 1, 130.0)]
    # 50 tokens were asked before and 30 answered; hits of first turns are the template's.
    assert (prompts.sent, prompts.reusable, prompts.cached) == (230, 80, 64)


@pytest.mark.parametrize("conversation", [2, -1])
def test_unrequested_conversation_is_damage(conversation: int) -> None:
    with pytest.raises(DamagedResult):
        read_level(
            [turn(conversation, 0, 0.0, prompt=50, cached=0)],
            Ended(cancelled=0, seconds=7.0),
            scenario="D(50,30)",
            plan=make_plan(Load(2), 4, conversations=(0, 2)),
            spec=BenchmarkSpec(turns=2),
            began_at=BEGAN,
        )


def test_several_tokens_a_piece_are_several() -> None:
    pieces = LINE["metrics"] | {"inter_chunk_latency": {"value": [20.0] * 9}}

    level = read(line(0, metrics=pieces))

    # Thirty tokens in ten pieces: the first three were there with the first piece.
    assert level.stats.tpot is not None
    assert level.stats.tpot.p50 == pytest.approx((0.26894893 - 0.119863236) / 27)
    assert level.requests is not None
    assert unpack_requests(level.requests)[0].num_first_tokens == 3
