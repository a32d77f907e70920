import shlex

import pytest
from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkSpec, LoadSearch
from shared.benchmarks.arrivals import Load
from shared.benchmarks.same_load import VLLM, make_load_commands
from shared.benchmarks.tools.adapter import Target

TARGET = Target(base_url="http://localhost:8000", model_name="org/a model")
FOUR = Load(4)
PLAIN = BenchmarkSpec(max_requests_per_level=50, warmup_requests=2)


def options_of(
    tool: str, scenario: str = "D(400,60)", load: Load = FOUR, spec: BenchmarkSpec = PLAIN
) -> dict[str, str]:
    [command] = [
        c.command for c in make_load_commands(spec, scenario, load, TARGET) if c.tool == tool
    ]
    assert command is not None
    words = shlex.split(command)
    return dict(zip(words, [*words[1:], ""], strict=True))


def refusals(scenario: str, load: Load, spec: BenchmarkSpec = PLAIN) -> dict[str, str]:
    commands = make_load_commands(spec, scenario, load, TARGET)
    return {each.tool: each.reason for each in commands if each.command is None}


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ("builtin", {"--scenario": "D(400,60)", "--concurrency": "4", "--max-requests": "50"}),
        ("genai-bench", {"--traffic-scenario": "D(400,60)", "--num-concurrency": "4"}),
        ("aiperf", {"--isl": "400", "--osl": "60", "--concurrency": "4", "--request-count": "50"}),
        (VLLM, {"--random-input-len": "400", "--max-concurrency": "4", "--num-warmups": "2"}),
    ],
)
def test_each_tool_gets_lengths_load_and_model(tool: str, options: dict[str, str]) -> None:
    given = options_of(tool)

    assert {name: given.get(name) for name in options} == options
    assert "org/a model" in given


def test_uniform_lengths_become_the_range_ratio_of_vllm() -> None:
    both = options_of(VLLM, "U(50,150)/(10,30)")
    apart = options_of(VLLM, "U(50,150)/(20,20)")

    assert (both["--random-input-len"], both["--random-range-ratio"]) == ("100", "0.5")
    assert apart["--random-range-ratio"] == '{"input": 0.5, "output": 0.0}'


def test_normal_lengths_become_means_and_spreads_of_aiperf() -> None:
    given = options_of("aiperf", "N(100,10)/(50,5)")

    assert [given[name] for name in ("--isl", "--isl-stddev", "--osl-stddev")] == ["100", "10", "5"]


def test_shared_prefix_is_taken_out_of_the_prompt_length() -> None:
    spec = BenchmarkSpec(prefix_share=0.25)

    assert options_of(VLLM, spec=spec)["--random-input-len"] == "300"
    assert options_of("aiperf", spec=spec)["--prefix-prompt-length"] == "100"


def test_timed_arrivals_become_a_request_rate() -> None:
    load = Load(4096, "poisson(3.5)")

    assert options_of("aiperf", load=load)["--arrival-pattern"] == "poisson"
    assert options_of(VLLM, load=load)["--request-rate"] == "3.5"
    assert options_of("builtin", load=load)["--arrivals"] == "poisson(3.5)"
    assert "arrivals" in refusals("D(9,9)", load)["genai-bench"]


@pytest.mark.parametrize(
    ("scenario", "load", "tool", "because"),
    [
        ("U(1,9)/(1,9)", Load(1), "aiperf", "normal or fixed"),
        ("N(9,1)/(9,1)", Load(1), VLLM, "uniform or fixed"),
        ("D(9,9)", Load(9, "constant(2)"), VLLM, "not evenly"),
        ("D(9,9)", Load(9, "burst(2,4)"), "aiperf", "burst(2,4)"),
        ("D(9,9)", Load(9, "trace"), "builtin", "times of arrivals"),
        ("dataset", Load(1), "genai-bench", "dataset"),
    ],
)
def test_tool_that_cannot_send_a_load_says_why(
    scenario: str, load: Load, tool: str, because: str
) -> None:
    assert because in refusals(scenario, load)[tool]


def test_level_of_a_load_search_is_a_plain_load() -> None:
    spec = BenchmarkSpec(load_search=LoadSearch())

    assert refusals("D(9,9)", Load(7), spec) == {}


def test_parameters_of_requests_reach_every_tool_once() -> None:
    spec = BenchmarkSpec(additional_params={"temperature": "0.5", "ignore_eos": False})

    assert options_of("builtin", spec=spec)["--param"] in {"temperature=0.5", "ignore_eos=false"}
    assert options_of(VLLM, spec=spec)["--extra-body"] == '{"temperature": 0.5}'
    assert "--ignore-eos" not in options_of(VLLM, spec=spec)
    assert options_of("genai-bench", spec=spec)["--api-backend"] == "openai"


WHOLE = BenchmarkSpec(traffic_scenarios=("E(40)",), batch_size=3, max_requests_per_level=50)


@pytest.mark.parametrize(
    ("tool", "scenario", "options"),
    [
        ("builtin", "E(40)", {"--scenario": "E(40)", "--batch-size": "3"}),
        (
            "aiperf",
            "E(40)",
            {"--endpoint-type": "embeddings", "--isl": "40", "--batch-size-text": "3"},
        ),
        (
            "aiperf",
            "R(30,9)",
            {
                "--endpoint-type": "cohere-rankings",
                "--rankings-passages-mean": "3",
                "--rankings-query-prompt-token-mean": "9",
            },
        ),
        (
            VLLM,
            "E(40)",
            {
                "--backend": "openai-embeddings",
                "--endpoint": "/v1/embeddings",
                "--random-batch-size": "3",
                "--num-prompts": "150",
                "--percentile-metrics": "e2el",
            },
        ),
    ],
)
def test_batches_become_each_tools_options(
    tool: str, scenario: str, options: dict[str, str]
) -> None:
    spec = replace(WHOLE, traffic_scenarios=(scenario,))
    given = options_of(tool, scenario, FOUR, spec)

    assert {name: given.get(name) for name in options} == options
    assert "--streaming" not in given
    assert "--osl" not in given


def test_images_become_each_tools_options() -> None:
    spec = replace(PLAIN, traffic_scenarios=("I(64,48,2)",))
    aiperf = options_of("aiperf", "I(64,48,2)", FOUR, spec)
    vllm = options_of(VLLM, "I(64,48,2)", FOUR, spec)

    assert (aiperf["--image-batch-size"], aiperf["--image-width-mean"]) == ("2", "64")
    assert (aiperf["--isl"], aiperf["--osl"]) == ("100", "100")
    assert vllm["--dataset-name"] == "random-mm"
    assert vllm["--random-mm-bucket-config"] == "{(48, 64, 1): 1.0}"


def test_tools_without_a_command_say_why() -> None:
    rerank = replace(WHOLE, traffic_scenarios=("R(30,9)",))
    images = replace(PLAIN, traffic_scenarios=("I(64,48)",))

    assert refusals("E(40)", FOUR, WHOLE) == {
        "genai-bench": "it sends requests of embeddings one after the other"
    }
    assert refusals("E(40)", Load(1), WHOLE) == {}
    assert set(refusals("R(30,9)", Load(1), rerank)) == {VLLM}
    assert set(refusals("I(64,48)", FOUR, images)) == {"genai-bench"}
