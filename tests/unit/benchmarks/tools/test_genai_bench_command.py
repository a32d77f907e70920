"""How genai-bench is called, and what is understood of what it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.genai_bench.command import (
    Batch,
    arguments,
    batches,
    environment,
    minutes_per_level,
    tool_scenario,
)
from shared.benchmarks.genai_bench.masking import mask
from shared.benchmarks.genai_bench.output import OutputReader, Said
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.tools.spec_check import check_genai_bench
from shared.benchmarks.traffic import UnsupportedTraffic

TARGET = Target(base_url="http://127.0.0.1:8000/", model_name="m", api_key="sk-secret")
BATCH = Batch(scenario="D(64,32)", concurrencies=(1, 8), first=1)


def make_arguments(spec: BenchmarkSpec, **overrides: Any) -> list[str]:  # any argument
    given: dict[str, Any] = {
        "batch": BATCH,
        "tokenizer": "/models/m",
        "owned_by": "vllm",
        "directory": Path("/runs/1/results"),
        "log_directory": Path("/runs/1"),
    }
    batch = overrides.pop("batch", given.pop("batch"))
    return arguments(["genai-bench"], spec, TARGET, batch, **given | overrides)


def test_command_measures_many_concurrencies() -> None:
    spec = BenchmarkSpec(max_requests_per_level=50, max_time_per_level_seconds=90)

    assert make_arguments(spec) == [
        "genai-bench",
        "benchmark",
        "--api-backend=vllm",
        "--api-base=http://127.0.0.1:8000",
        "--api-key=none",
        "--api-model-name=m",
        "--model-tokenizer=/models/m",
        "--task=text-to-text",
        "--max-time-per-run=2",
        "--max-requests-per-run=50",
        "--traffic-scenario=D(64,32)",
        "--experiment-base-dir=/runs/1",
        "--experiment-folder-name=results",
        "--log-dir=/runs/1",
        "--metrics-refresh-interval=1.0",
        "--num-concurrency=1",
        "--num-concurrency=8",
    ]


@pytest.mark.parametrize(
    ("owned_by", "ignores_eos", "backend"),
    [
        *(("vllm", True, "vllm"), ("sglang", True, "sglang"), ("llamacpp", True, "vllm")),
        *((None, True, "vllm"), ("sglang", False, "openai")),
    ],
)
def test_backend_keeps_ignore_eos_by_default(
    owned_by: str | None, ignores_eos: bool, backend: str
) -> None:
    spec = BenchmarkSpec(additional_params={"ignore_eos": ignores_eos, "temperature": "0.5"})
    given = make_arguments(spec, owned_by=owned_by)

    assert given[2] == f"--api-backend={backend}"
    parameters = next(each for each in given if each.startswith("--additional-request-params="))
    assert json.loads(parameters.partition("=")[2]) == {"temperature": 0.5}


def test_scenarios_run_one_after_the_other() -> None:
    spec = BenchmarkSpec(traffic_scenarios=("D(1,1)", "D(2,2)"), num_concurrency=(1, 4))

    assert batches(spec) == [
        Batch(scenario="D(1,1)", concurrencies=(1, 4), first=1),
        Batch(scenario="D(2,2)", concurrencies=(1, 4), first=3),
    ]


def test_repeated_concurrency_begins_a_batch() -> None:
    spec = BenchmarkSpec(num_concurrency=(4, 1, 4))

    assert [(batch.concurrencies, batch.first) for batch in batches(spec)] == [
        ((4, 1), 1),
        ((4,), 3),
    ]


def test_what_is_left_of_a_batch_keeps_its_place() -> None:
    assert BATCH.after(1) == Batch(scenario="D(64,32)", concurrencies=(8,), first=2)


@pytest.mark.parametrize(
    ("scenario", "written"),
    [("U(100)/(200)", "U(100,200)"), ("U(1,2)/(3,4)", "U(1,2)/(3,4)"), ("D(1,2)", "D(1,2)")],
)
def test_scenarios_are_in_the_tools_form(scenario: str, written: str) -> None:
    assert tool_scenario(scenario) == written


@pytest.mark.parametrize(("seconds", "minutes"), [(0.5, 1), (60, 1), (61, 2), (600, 10)])
def test_a_levels_time_is_rounded_up_to_minutes(seconds: float, minutes: int) -> None:
    assert minutes_per_level(BenchmarkSpec(max_time_per_level_seconds=seconds)) == minutes


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"task": "text-to-embeddings"}, "$.benchmark.task"),
        ({"traffic_scenarios": ("E(64)", "D(1,1)")}, "$.benchmark.traffic_scenarios"),
        ({"traffic_scenarios": ("U(9,1)/(1,2)",)}, "$.benchmark.traffic_scenarios"),
        ({"additional_params": {"stream": False}}, "$.benchmark.additional_params.stream"),
    ],
)
def test_unsupported_tool_use_is_refused(overrides: dict[str, Any], path: str) -> None:
    with pytest.raises(UnsupportedTraffic) as refused:
        check_genai_bench(BenchmarkSpec(**overrides))

    assert refused.value.path == path


def test_credentials_are_not_passed_on() -> None:
    """The tool takes those of clouds as defaults of its options, and writes all options down."""
    found = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "x", "GITHUB_TOKEN": "y", "HTTP_PROXY": "p"}

    env = environment(found, TARGET, is_tokenizer_local=True)

    assert not {"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "HTTP_PROXY"} & env.keys()
    assert (env["PATH"], env["HF_HUB_OFFLINE"], env["ENABLE_UI"]) == ("/bin", "1", "false")
    assert env["MODEL_API_KEY"] == "sk-secret"


def test_only_the_hub_is_reached_by_proxy() -> None:
    found = {"HTTPS_PROXY": "http://proxy", "NO_PROXY": "example.org", "HF_TOKEN": "t"}

    env = environment(found, TARGET, is_tokenizer_local=False)

    assert "HF_HUB_OFFLINE" not in env
    assert (env["HTTPS_PROXY"], env["HF_TOKEN"]) == ("http://proxy", "t")
    assert env["NO_PROXY"] == "example.org,127.0.0.1"


RUN = b"INFO     2026-11-21 10:48:51.%f - genai_bench.benchmark:benchmark - "
START = RUN + b"Starting benchmark with concurrency=2, spawn_rate=2\n"
FAILURE = (
    b"WARNING  2026-11-21 10:48:52.%f - genai_bench.user.base_user:collect_metrics - "
    b"Received error response from server. Error code: 503, message: gone.\n"
)


def test_lines_are_understood_wherever_they_are_cut() -> None:
    said = START + FAILURE + FAILURE
    for size in (1, 7, len(said)):
        reader = OutputReader()
        heard = [
            each for at in range(0, len(said), size) for each in reader.feed(said[at : at + size])
        ]

        assert heard == [Said.RUN_STARTED, Said.REQUEST_FAILED, Said.REQUEST_FAILED]
        assert "Error code: 503" in reader.last_words


def test_exception_is_the_tools_last_word() -> None:
    reader = OutputReader()
    reader.feed(START + b"Traceback (most recent call last):\n  File x\nOSError: no hub\n")

    assert reader.last_words == "OSError: no hub"


def test_option_with_a_known_line_starts_nothing() -> None:
    assert OutputReader().feed(RUN + b"model: Starting benchmark with concurrency=2\n") == []


def test_a_key_is_masked_where_it_stands(tmp_path: Path) -> None:
    key = 'sk-"quoted"\\key'
    log, document = tmp_path / "output.log", tmp_path / "results" / "metadata.json"
    document.parent.mkdir()
    log.write_text(f"model_api_key: {key}\nafter\n{key}")
    document.write_text(json.dumps({"cmd": f"--model-api-key {key} --task t"}))
    (tmp_path / "genai_bench.log").symlink_to("/dev/null")
    size = log.stat().st_size

    with log.open("a") as appending:
        mask(tmp_path, key)
        appending.write("\nlater")

    assert key not in log.read_text()
    assert "sk-" not in document.read_text()
    assert json.loads(document.read_text())["cmd"].startswith("--model-api-key ****")
    assert log.read_text().endswith("\nlater")
    assert log.stat().st_size == size + len("\nlater")
