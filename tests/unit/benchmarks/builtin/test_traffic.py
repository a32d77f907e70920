import random

import pytest

from shared.benchmarks.traffic import (
    UnsupportedTraffic,
    chat_body,
    make_prompt,
    parse_scenario,
    request_parameters,
)


def sizes(scenario: str, count: int = 500) -> list[tuple[int, int]]:
    sample = parse_scenario(scenario)
    rng = random.Random(1)
    drawn = [sample(rng) for _ in range(count)]
    return [(size.num_input_tokens, size.num_output_tokens) for size in drawn]


def test_a_deterministic_scenario_gives_one_size() -> None:
    assert set(sizes("D(100,20)")) == {(100, 20)}


def test_normal_scenario_spreads_around_its_mean() -> None:
    drawn = sizes("N(480,240)/(3,10)")

    inputs, outputs = zip(*drawn, strict=True)
    assert 440 < sum(inputs) / len(inputs) < 520
    assert 200 < (sum((value - 480) ** 2 for value in inputs) / len(inputs)) ** 0.5 < 280
    assert min(outputs) == 1


@pytest.mark.parametrize("scenario", ["D(0,0)", "N(1,9)/(1,9)", "U(0,1)/(0,1)"])
def test_a_request_has_at_least_one_token_in_and_out(scenario: str) -> None:
    inputs, outputs = zip(*sizes(scenario), strict=True)

    assert (min(inputs), min(outputs)) == (1, 1)


def test_a_uniform_scenario_takes_both_ends() -> None:
    inputs, outputs = zip(*sizes("U(5,8)/(1,2)"), strict=True)

    assert set(inputs) == {5, 6, 7, 8}
    assert set(outputs) == {1, 2}


def test_uniform_scenario_of_two_starts_at_one() -> None:
    inputs, outputs = zip(*sizes("U(3)/(2)"), strict=True)

    assert sizes("U(3)/(2)") == sizes("U(1,3)/(1,2)")

    assert set(inputs) == {1, 2, 3}
    assert set(outputs) == {1, 2}


@pytest.mark.parametrize(
    "scenario",
    [
        *("dataset", "U(8,5)/(1,2)", "U(0)/(1)", "U(0,0)/(1,2)", ""),
        *("I(0,10)", "I(10,9000)", "I(10,10,0)", "I(10,10,65)"),
    ],
)
def test_traffic_that_cannot_be_made_is_refused(scenario: str) -> None:
    with pytest.raises(UnsupportedTraffic) as refusal:
        parse_scenario(scenario)

    assert refusal.value.path == "$.benchmark.traffic_scenarios"


def test_prompts_have_words_and_do_not_repeat() -> None:
    rng = random.Random(7)

    prompts = [make_prompt(40, rng) for _ in range(1000)]

    assert {len(prompt.split()) for prompt in prompts} == {40}
    assert len({" ".join(prompt.split()[:4]) for prompt in prompts}) == 1000


def test_the_same_seed_gives_the_same_prompt() -> None:
    assert make_prompt(30, random.Random(3)) == make_prompt(30, random.Random(3))


def test_free_form_parameters_reach_the_request() -> None:
    parameters = request_parameters({"temperature": "0.0", "top_k": 5, "extra": {"a": [1]}})

    body = chat_body("m", [{"role": "user", "content": "hello"}], 9, parameters)

    assert body == {
        "ignore_eos": True,
        "temperature": 0.0,
        "top_k": 5,
        "extra": {"a": [1]},
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_ignore_eos_can_be_turned_off() -> None:
    assert request_parameters({"ignore_eos": False})["ignore_eos"] is False


@pytest.mark.parametrize(
    ("additional", "path"),
    [
        pytest.param({"stream": False}, "$.benchmark.additional_params.stream", id="the stream"),
        pytest.param({"max_tokens": 1}, "$.benchmark.additional_params.max_tokens", id="length"),
        pytest.param({"top_p": "hot"}, "$.benchmark.additional_params.top_p", id="no number"),
        pytest.param({"seed": "true"}, "$.benchmark.additional_params.seed", id="a boolean"),
    ],
)
def test_spoiling_parameters_are_refused(additional: dict[str, object], path: str) -> None:
    with pytest.raises(UnsupportedTraffic) as refusal:
        request_parameters(additional)

    assert refusal.value.path == path
