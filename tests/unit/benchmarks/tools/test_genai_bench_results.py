"""Result files of genai-bench: what they say, and what they say wrongly."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.task.benchmark import LevelResult, LevelStats
from shared.benchmarks.experiment_metrics import aggregate
from shared.benchmarks.genai_bench.results import (
    Observed,
    RunAggregate,
    debug_file_name,
    file_pattern,
    level_of,
    make_unanswered_level,
    read_run,
    with_unanswered,
)
from shared.benchmarks.levels.request_columns import RequestRow, unpack_requests
from shared.benchmarks.metrics import FailedRequest, RequestSample, level_result
from shared.benchmarks.tools.adapter import DamagedResult

STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OBSERVED = Observed(started_at=STARTED, seconds=7.0)
MEASURES = (
    *("ttft", "tpot", "e2e_latency", "output_latency", "output_inference_speed"),
    *("num_input_tokens", "num_output_tokens", "num_reasoning_tokens", "total_tokens"),
    *("input_throughput", "output_throughput", "audio_throughput"),
)


def make_request(**overrides: Any) -> dict[str, Any]:  # any field
    """A completed request as the tool writes it."""
    latency = {"ttft": 0.5, "tpot": 0.1, "e2e_latency": 2.5, "output_latency": 2.0}
    tokens = {"num_input_tokens": 100, "num_output_tokens": 21, "total_tokens": 121}
    return dict.fromkeys(MEASURES) | latency | tokens | {"error_code": None} | overrides


def failed_request(code: int) -> dict[str, Any]:
    return dict.fromkeys(MEASURES) | {"error_code": code, "error_message": "no"}


def spread(value: float | None) -> dict[str, float | None]:
    names = ("min", "max", "mean", "stddev", "sum", "p25", "p50", "p75", "p90", "p95", "p99")
    return dict.fromkeys(names, value)


def make_file(*requests: dict[str, Any], unit: str = "s", **overrides: Any) -> bytes:  # any field
    """A result file of these requests; the tool's own `error_rate` is 0, as it always is."""
    failures = [str(each["error_code"]) for each in requests if each["error_code"] is not None]
    stats = {name: spread(1.5) for name in MEASURES} | {"audio_throughput": spread(None)}
    aggregated = {
        "scenario": "D(100,21)",
        "num_concurrency": 2,
        "batch_size": 1,
        "iteration_type": "num_concurrency",
        "run_duration": 4.0,
        "mean_output_throughput_tokens_per_s": 10.5,
        "mean_input_throughput_tokens_per_s": 50.0,
        "mean_total_tokens_throughput_tokens_per_s": 60.5,
        "requests_per_second": 0.5,
        "error_codes_frequency": {code: failures.count(code) for code in failures},
        "error_rate": 0,
        "num_error_requests": len(failures),
        "num_completed_requests": len(requests) - len(failures),
        "num_requests": len(requests),
        "stats": stats,
    }
    document = {
        "aggregated_metrics": aggregated | overrides,
        "individual_request_metrics": requests,
        "_time_unit": unit,
    }
    return json.dumps(document, indent=4).encode()


def make_debug_file(*requests: dict[str, Any]) -> bytes:
    """As the tool leaves it when its aggregation raised: errors counted by code alone."""
    return make_file(
        *requests,
        run_duration=0.0,
        num_error_requests=0,
        num_requests=0,
        requests_per_second=0.0,
        mean_output_throughput_tokens_per_s=0.0,
        stats={name: spread(None) for name in MEASURES},
    )


def test_the_tools_figures_are_taken_as_they_are() -> None:
    level = read_run(make_file(make_request(), make_request()), OBSERVED)

    assert (level.scenario, level.num_concurrency) == ("D(100,21)", 2)
    assert (level.num_requests, level.num_completed_requests) == (2, 2)
    assert level.mean_output_throughput_tokens_per_s == 10.5
    assert level.mean_input_throughput_tokens_per_s == 50.0
    assert level.mean_total_tokens_throughput_tokens_per_s == 60.5
    assert level.requests_per_second == 0.5
    assert level.stats.ttft is not None
    assert level.stats.ttft.p99 == 1.5
    assert (level.started_at, level.run_duration) == (STARTED, 4.0)
    assert level.finished_at - level.started_at == timedelta(seconds=4)


def test_what_a_file_does_not_say_is_nothing() -> None:
    empty = read_run(b'{"aggregated_metrics": {}}', OBSERVED)
    timed = read_run(b'{"aggregated_metrics": {"run_duration": 0.5}}', OBSERVED)

    assert (empty.run_duration, timed.run_duration) == (7.0, 0.5)
    for level in (empty, timed):
        assert (level.scenario, level.num_concurrency, level.stats) == ("", 1, LevelStats())
        assert (level.num_requests, level.num_completed_requests, level.num_error_requests) == (
            *(0, 0, 0),
        )
        assert (level.error_rate, level.requests_per_second) == (0.0, 0.0)
        assert level.mean_output_throughput_tokens_per_s == 0.0
        assert level.mean_input_throughput_tokens_per_s == 0.0
        assert level.mean_total_tokens_throughput_tokens_per_s == 0.0


def test_the_error_rate_is_counted_and_not_the_tools() -> None:
    failures = [failed_request(503)] * 3 + [failed_request(500)] * 2
    level = read_run(make_file(make_request(), *failures), OBSERVED)

    assert level.num_requests == 6
    assert (level.num_completed_requests, level.num_error_requests) == (1, 5)
    assert level.error_rate == pytest.approx(5 / 6)
    assert level.error_codes_frequency == {"500": 2, "503": 3}
    assert level.requests is not None
    assert unpack_requests(level.requests) == [
        RequestRow(ttft=0.5, e2e_latency=2.5, num_input_tokens=100, num_output_tokens=21),
        *[RequestRow(error="503")] * 3,
        *[RequestRow(error="500")] * 2,
    ]


def test_requests_without_times_are_not_shown() -> None:
    unknown = [make_request(ttft=None), make_request(e2e_latency=None)]

    level = read_run(make_file(make_request(), *unknown), OBSERVED)

    assert level.requests is not None
    assert [row.ttft for row in unpack_requests(level.requests)] == [0.5]


def test_tokens_that_were_not_counted_are_none() -> None:
    level = read_run(
        make_file(make_request(num_input_tokens=None, num_output_tokens=None)), OBSERVED
    )

    assert level.requests is not None
    (row,) = unpack_requests(level.requests)
    assert (row.num_input_tokens, row.num_output_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("concurrency", "completed", "latency", "unanswered"),
    [
        pytest.param(4, 2, 0.1, 4, id="every client waits"),
        pytest.param(4, 90, 0.1, 4, id="every client waits, after a good while"),
        pytest.param(4, 93, 1.9, 1, id="one client waits"),
        pytest.param(4, 120, 1.9, 0, id="a client's own work between requests"),
        pytest.param(64, 64, 40.0, 0, id="long requests cut off at the end"),
        pytest.param(64, 3, 20.0, 63, id="a load that it hardly answers"),
        pytest.param(4, 110, 1.75, 0, id="no more than is usual"),
        pytest.param(1, 10, 4.0, 1, id="a part of the time"),
    ],
)
def test_dropped_requests_are_errors(
    concurrency: int, completed: int, latency: float, unanswered: int
) -> None:
    """An engine that hangs under load would be measured by what it answered before."""
    file = make_file(
        *[make_request()] * completed,
        num_concurrency=concurrency,
        run_duration=60.0,
        stats={name: spread(latency) | {"sum": latency * completed} for name in MEASURES},
    )

    level = with_unanswered(read_run(file, OBSERVED))

    assert level.error_codes_frequency == ({"unanswered": unanswered} if unanswered else {})
    assert level.num_error_requests == unanswered
    assert level.num_requests == completed + unanswered
    assert level.error_rate == unanswered / (completed + unanswered)


@pytest.mark.parametrize(("errors", "others"), [(5, {}), (6, {"other": 1}), (8, {"other": 3})])
def test_errors_without_code_are_others(errors: int, others: dict[str, int]) -> None:
    file = make_file(make_request(), *[failed_request(503)] * 5, num_error_requests=errors)

    assert read_run(file, OBSERVED).error_codes_frequency == {"503": 5} | others


def test_debug_file_without_success_is_failed() -> None:
    level = read_run(make_debug_file(*[failed_request(503)] * 645), OBSERVED)

    assert (level.num_requests, level.num_completed_requests) == (645, 0)
    assert (level.num_error_requests, level.error_rate) == (645, 1.0)
    assert level.stats == LevelStats()
    assert level.run_duration == 7.0
    assert level.mean_output_throughput_tokens_per_s == 0.0


def test_debug_file_is_measured_from_requests() -> None:
    """Answers in one piece have no time per token, over which the tool gives up the whole run."""
    whole = make_request(ttft=2.5, tpot=None, output_latency=0.0)
    level = read_run(make_debug_file(whole, whole, failed_request(500)), OBSERVED)

    expected = level_result(
        scenario="D(100,21)",
        num_concurrency=2,
        started_at=STARTED,
        run_duration=7.0,
        samples=[
            RequestSample(ttft=2.5, e2e_latency=2.5, num_input_tokens=100, num_output_tokens=21)
        ]
        * 2,
        error_codes={"500": 1},
        failed=[FailedRequest(code="500")],
    )
    assert level == expected
    assert level.stats.tpot is None


def test_unwritten_run_counts_open_requests() -> None:
    level = make_unanswered_level("D(1,1)", 4, OBSERVED)

    assert (level.num_requests, level.num_error_requests, level.error_rate) == (4, 4, 1.0)
    assert level.error_codes_frequency == {"unanswered": 4}
    assert with_unanswered(level) == level


@pytest.mark.parametrize(
    "scenario",
    [
        *("D(100,21)", "N(480,240)/(300,150)", "U(50,100)/(200,250)", "U(100,200)"),
        *("E(64)", "R(1024,100)", "I(512,512)", "I(2048,2048,2)", "P(2000)", "dataset"),
    ],
)
def test_every_scenario_keeps_its_name(scenario: str) -> None:
    level = read_run(make_file(make_request(), scenario=scenario), OBSERVED)

    assert level.scenario == scenario
    assert level.num_completed_requests == 1


def test_embeddings_have_no_measure_of_output() -> None:
    """The tool writes 0 for what such a task does not have, and the end for its first token."""
    zero = ("tpot", "output_latency", "output_inference_speed", "output_throughput")
    stats = {name: spread(1.5) for name in MEASURES}
    stats |= {name: spread(0) for name in (*zero, "num_output_tokens")}
    level = read_run(make_file(make_request(), scenario="E(64)", stats=stats), OBSERVED)

    absent = (*zero, "ttft", "num_output_tokens")
    assert [getattr(level.stats, name) for name in absent] == [None] * len(absent)
    assert level.stats.e2e_latency is not None
    assert level.stats.num_input_tokens is not None
    assert level.mean_output_throughput_tokens_per_s is None
    assert level.items_per_second == level.requests_per_second
    assert level.requests is not None
    [row] = unpack_requests(level.requests)
    assert (row.ttft, row.num_output_tokens) == (None, None)


def test_milliseconds_become_seconds() -> None:
    stats = {name: spread(1500.0) for name in MEASURES}
    level = read_run(make_file(make_request(), unit="ms", stats=stats), OBSERVED)

    assert level.stats.ttft is not None
    assert level.stats.input_throughput is not None
    assert (level.stats.ttft.mean, level.stats.input_throughput.mean) == (1.5, 1500.0)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b'{"aggregated_metrics": 3}'),
        make_file(make_request(), unit="h"),
        make_file(make_request(), unit="h", run_duration=0.0),
    ],
    ids=["empty", "cut off", "no object", "no aggregate", "unknown unit", "that of requests alone"],
)
def test_what_is_no_result_is_told(content: bytes) -> None:
    with pytest.raises(DamagedResult):
        read_run(content, OBSERVED)


@pytest.mark.parametrize(
    ("scenario", "written"),
    [
        ("D(64,32)", "D64_32_text-to-text_num_concurrency_8_time_4s.json"),
        ("N(480,240)/(300,150)", "N480_240_300_150_text-to-text_num_concurrency_8_time_61s.json"),
        ("dataset", "dataset_text-to-text_num_concurrency_8_time_1s.json"),
    ],
)
def test_the_file_of_a_run_is_found_by_its_name(scenario: str, written: str) -> None:
    assert Path(written).match(file_pattern(scenario, "text-to-text", "num_concurrency", 8))
    assert not Path(written).match(file_pattern(scenario, "text-to-text", "num_concurrency", 80))


def test_the_debug_file_of_a_run_has_its_name() -> None:
    assert debug_file_name("U(1,2)/(3,4)", 16) == "debug_for_run_U1_2_3_4_16.json"


def stored_run() -> dict[str, Any]:
    folder = os.environ.get("GPUSTEWARD_TEST_DATA")
    path = Path(folder or "") / "genai-bench" / "docker-simple-tune_results.json"
    if folder is None or not path.is_file():
        pytest.skip("needs recorded genai-bench results: set GPUSTEWARD_TEST_DATA to their folder")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def levels_of(experiment: dict[str, Any]) -> list[LevelResult]:
    raw = experiment["metrics"]["raw_results"]
    return [level_of(msgspec.convert(each, RunAggregate), OBSERVED) for each in raw]


def test_recorded_runs_give_the_recorded_means() -> None:
    compared = 0
    for experiment in stored_run()["all_results"]:
        recorded = experiment["metrics"]
        computed = {
            name: value
            for name, value in msgspec.to_builtins(aggregate(levels_of(experiment))).items()
            if name in recorded and name != "p99_e2e_latency"
        }

        assert computed == {name: recorded[name] for name in computed}
        compared += len(computed)
    assert compared == 2 * 15


def test_recorded_runs_are_read_whole() -> None:
    for experiment in stored_run()["all_results"]:
        for level, raw in zip(
            levels_of(experiment), experiment["metrics"]["raw_results"], strict=True
        ):
            told = msgspec.to_builtins(level)
            assert {name: told["stats"][name] for name in told["stats"]} == {
                name: raw["stats"][name] for name in told["stats"]
            }
            same = (
                *("scenario", "num_concurrency", "run_duration", "num_requests", "error_rate"),
                *("num_completed_requests", "num_error_requests", "requests_per_second"),
                *("mean_output_throughput_tokens_per_s", "error_codes_frequency"),
            )
            assert {name: told[name] for name in same} == {name: raw[name] for name in same}


def test_recorded_runs_rank_as_they_were_ranked() -> None:
    document = stored_run()

    scores = {
        experiment["experiment_id"]: aggregate(levels_of(experiment)).mean_e2e_latency
        for experiment in document["all_results"]
    }

    assert all(score is not None for score in scores.values())
    best = min(scores, key=lambda identifier: scores[identifier] or float("inf"))
    assert best == document["best_result"]["experiment_id"]
    recorded = {each["experiment_id"]: each["objective_score"] for each in document["all_results"]}
    assert scores == recorded
