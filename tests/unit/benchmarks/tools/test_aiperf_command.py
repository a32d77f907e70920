"""What AIPerf is told to do."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.aiperf.adapter import AIPerf
from shared.benchmarks.aiperf.command import (
    KEY_VARIABLE,
    configuration,
    environment,
    plan_level,
    request_lines,
)
from shared.benchmarks.arrivals import Load
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.traffic import UnsupportedTraffic

SPEC = BenchmarkSpec(
    traffic_scenarios=("D(20,4)",),
    max_requests_per_level=6,
    max_time_per_level_seconds=12.0,
    warmup_requests=2,
)
OPEN = 4096
TARGET = Target(base_url="http://h:1/", model_name="m", api_key="sk-secret")


def told(load: Load, spec: BenchmarkSpec = SPEC) -> dict[str, Any]:
    plan = plan_level(spec, "D(20,4)", load, seed=1)
    document = configuration(
        plan, spec, TARGET, requests=Path("/r"), tokenizer=Path("/t"), directory=Path("/d")
    )
    benchmark: dict[str, Any] = document["benchmark"]
    return benchmark


def lines(load: Load, spec: BenchmarkSpec = SPEC, *, seed: int = 1) -> list[dict[str, Any]]:
    plan = plan_level(spec, spec.traffic_scenarios[0], load, seed)
    return [msgspec.json.decode(line) for line in request_lines(plan, spec, "m")]


@pytest.mark.parametrize(
    ("load", "how"),
    [
        (Load(3), {"type": "concurrency", "concurrency": 3}),
        (Load(OPEN, "poisson(20)"), {"type": "poisson", "rate": 20.0}),
        (Load(OPEN, "constant(0.5)"), {"type": "constant", "rate": 0.5}),
    ],
)
def test_each_load_is_aiperfs_own(load: Load, how: dict[str, Any]) -> None:
    limits = {"duration": 12.0, "grace_period": 30.0}

    warmup, measured = told(load)["phases"]

    assert warmup.items() >= ({"kind": "warmup", "requests": 2} | how | limits).items()
    assert measured.items() >= ({"kind": "profiling", "requests": 6} | how | limits).items()


@pytest.mark.parametrize(
    ("arrivals", "milliseconds"),
    [("burst(2,2)", [0, 0, 1000, 1000, 2000, 2000]), ("trace", [0, 500, 4000])],
)
def test_bursts_and_traces_are_sent_at_their_times(
    arrivals: str, milliseconds: list[float]
) -> None:
    spec = msgspec.structs.replace(SPEC, arrival_trace_seconds=(7.0, 3.0, 3.5))
    load = Load(OPEN, arrivals)

    [phase] = told(load, spec)["phases"]

    assert (phase["type"], phase["requests"]) == ("fixed_schedule", len(milliseconds))
    assert not phase["auto_offset"], "the first is sent at its own time"
    sent = lines(load, spec)
    assert [line["timestamp"] for line in sent] == milliseconds
    assert sent[0]["payload"]["max_tokens"] == 4


def test_a_trace_ends_with_the_levels_time() -> None:
    spec = msgspec.structs.replace(SPEC, arrival_trace_seconds=(0.0, 11.0, 12.0))

    assert [line["timestamp"] for line in lines(Load(OPEN, "trace"), spec)] == [0, 11_000]


def test_equal_seeds_make_equal_requests() -> None:
    sent = lines(Load(3))

    assert sent == lines(Load(5))
    assert sent != lines(Load(3), seed=2)
    prompts = [line["messages"][0]["content"] for line in sent]
    assert len(set(prompts)) == len(prompts) == 8
    assert all(len(prompt.split()) == 20 for prompt in prompts)
    assert all(line["stream"] and line["ignore_eos"] for line in sent)


def test_a_warm_scenario_shares_the_beginnings() -> None:
    spec = msgspec.structs.replace(SPEC, prefix_share=0.5)

    beginnings = {
        tuple(line["messages"][0]["content"].split()[:10]) for line in lines(Load(1), spec)
    }

    assert len(beginnings) == 1


CONVERSATIONS = msgspec.structs.replace(SPEC, turns=3, think_seconds=1.5)


@pytest.mark.parametrize(
    ("load", "how", "requests", "begun"),
    [
        # Six requests of two conversations and two before them of one, and as many as may be open.
        (Load(4), "concurrency", 6, 2 + 1 + 2 * 4),
        # At their own times, as its rates are of requests.
        (Load(OPEN, "constant(2)"), "fixed_schedule", 6, 2),
        (Load(OPEN, "burst(2,2)"), "fixed_schedule", 6, 2),
    ],
)
def test_conversations_are_its_own_with_our_prompts(
    load: Load, how: str, requests: int, begun: int
) -> None:
    benchmark = told(load, CONVERSATIONS)
    sent = lines(load, CONVERSATIONS)

    measured = benchmark["phases"][-1]
    assert (measured["type"], measured["requests"]) == (how, requests)
    numbers = [line["session_id"] for line in sent]
    assert numbers == [str(number) for number in range(begun) for _ in range(3)]
    assert [line.get("delay") for line in sent] == [None, 1500.0, 1500.0] * begun
    for line in sent:
        assert len(line["text_input"].split()) == 20
        assert line["extra"]["max_tokens"] == 4
        assert "messages" not in line["extra"]
    if how == "fixed_schedule":
        times = {"constant(2)": [0, 500], "burst(2,2)": [0, 0]}[load.arrivals or ""]
        assert [line["timestamp"] for line in sent[::3]] == times


def test_answers_are_streamed_and_counted_by_server() -> None:
    benchmark = told(Load(1))

    assert benchmark["endpoint"]["streaming"]
    assert benchmark["endpoint"]["use_server_token_count"]
    assert benchmark["phases"][0]["exclude_from_results"]
    for part in ("gpu_telemetry", "server_metrics", "network_latency"):
        assert benchmark[part] == {"enabled": False}


def test_key_is_in_the_environment_only() -> None:
    benchmark = told(Load(1))

    assert "sk-secret" not in str(benchmark)
    assert benchmark["endpoint"]["connection_reuse"] == "never"
    assert benchmark["endpoint"]["headers"] == {"Authorization": f"Bearer ${{{KEY_VARIABLE}}}"}
    env = environment(
        {"PATH": "/bin", "HF_TOKEN": "x", "HTTPS_PROXY": "http://p", "HF_HUB_OFFLINE": "1"},
        TARGET,
        prompts=Path("/p"),
        scratch=Path("/s"),
    )
    assert env[KEY_VARIABLE] == "sk-secret"
    # With HF_HUB_OFFLINE it takes the folder of a tokenizer for a name of the hub.
    assert not {"HF_TOKEN", "HTTPS_PROXY", "HF_HUB_OFFLINE"} & env.keys()


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"task": "text-to-embeddings"}, "$.benchmark.task"),
        ({"traffic_scenarios": ("dataset",)}, "$.benchmark.traffic_scenarios"),
        ({"arrivals": ("poisson(0)",)}, "$.benchmark.arrivals[0]"),
        ({"think_seconds": 1.0}, "$.benchmark.turns"),
        ({"additional_params": {"n": 2}}, "$.benchmark.additional_params.n"),
    ],
)
def test_what_it_is_not_driven_to_do_is_refused(overrides: dict[str, Any], path: str) -> None:
    with pytest.raises(UnsupportedTraffic) as refused:
        AIPerf().check(msgspec.structs.replace(SPEC, **overrides))

    assert refused.value.path == path


def test_tokens_are_those_that_the_server_counts() -> None:
    spec = BenchmarkSpec(traffic_scenarios=("E(40)",), batch_size=2, max_requests_per_level=3)
    plan = plan_level(spec, "E(40)", Load(1), 1).with_tokens(1.25)

    assert {size.num_input_tokens for size in plan.sizes} == {100}
    assert {size.item_tokens for size in plan.sizes} == {40}


def test_whole_answers_are_asked_in_lines_of_their_own() -> None:
    spec = BenchmarkSpec(traffic_scenarios=("R(9,2)",), batch_size=2, max_requests_per_level=3)
    plan = plan_level(spec, "R(9,2)", Load(1), 1)
    lines = [msgspec.json.decode(line) for line in request_lines(plan, spec, "m")]

    assert {tuple(line) for line in lines} == {("payload",)}
    assert {len(line["payload"]["documents"]) for line in lines} == {2}
