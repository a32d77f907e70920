"""Embeddings, rerank and images: how scenarios are read, sent, answered and counted."""

import json
import random
import re
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool, LevelResult, TrafficScenario
from schemas.task.dataset import DatasetSpec
from schemas.task.modality import MAX_BATCH, Modality, modality_of
from schemas.task.trace import TraceSpec
from shared.benchmarks.builtin.conversation import Conversation
from shared.benchmarks.experiment_metrics import aggregate, with_gpus
from shared.benchmarks.images import draw_image
from shared.benchmarks.levels.engine_share import fastest_level
from shared.benchmarks.levels.level_text import request_text
from shared.benchmarks.metrics import RequestSample, level_result, pool_levels
from shared.benchmarks.request_body import make_body
from shared.benchmarks.tools import present
from shared.benchmarks.tools.abilities import ABILITIES, list_asked
from shared.benchmarks.tools.spec_check import check_genai_bench, check_generated
from shared.benchmarks.traffic import RequestSize, UnsupportedTraffic, parse_scenario
from shared.benchmarks.whole_answers import MalformedAnswer, read_whole_answer
from shared.engines.simulated.requests import ChatRequest, EmbeddingsRequest, RerankRequest

RNG = random.Random(3)
PATTERN = re.compile(get_args(TrafficScenario)[1].pattern)
TOKENS = st.integers(1, 500)
BATCHES = st.integers(1, MAX_BATCH)
CHECKS = {BenchmarkTool.GENAI_BENCH: check_genai_bench}


def size_of(scenario: str, batch_size: int = 1) -> RequestSize:
    return parse_scenario(scenario, batch_size)(RNG)


def make_level(scenario: str = "E(64)", requests: int = 4, batch_size: int = 8) -> LevelResult:
    sample = RequestSample(e2e_latency=0.5, num_input_tokens=64 * batch_size)
    return level_result(
        scenario=scenario,
        num_concurrency=2,
        started_at=datetime(2026, 1, 2, tzinfo=UTC),
        run_duration=2.0,
        samples=[sample] * requests,
        error_codes={},
        batch_size=batch_size,
    )


@given(tokens=TOKENS, batch=BATCHES)
def test_embeddings_have_their_inputs_and_no_answer(tokens: int, batch: int) -> None:
    scenario = f"E({tokens})"
    size = size_of(scenario, batch)

    assert PATTERN.fullmatch(scenario)
    assert modality_of(scenario) is size.modality is Modality.EMBEDDINGS
    assert (size.num_items, size.item_tokens, size.num_output_tokens) == (batch, tokens, 0)
    assert size.num_input_tokens == batch * tokens


@given(tokens=TOKENS, query=TOKENS, batch=BATCHES)
def test_rerank_reads_the_query_with_each_document(tokens: int, query: int, batch: int) -> None:
    scenario = f"R({tokens},{query})"
    size = size_of(scenario, batch)

    assert PATTERN.fullmatch(scenario)
    assert modality_of(scenario) is size.modality is Modality.RERANK
    assert (size.item_tokens, size.query_tokens) == (tokens, query)
    assert size.num_input_tokens == batch * (tokens + query)


@given(width=st.integers(1, 8192), height=st.integers(1, 8192), images=st.integers(1, 64))
def test_images_have_their_number_and_size(width: int, height: int, images: int) -> None:
    for scenario in (f"I({width},{height},{images})", f"I({width},{height})"):
        size = size_of(scenario)
        expected = images if scenario.count(",") == 2 else 1

        assert PATTERN.fullmatch(scenario)
        assert modality_of(scenario) is size.modality is Modality.IMAGES
        assert (size.num_items, size.image_size) == (expected, (width, height))


@given(scenario=st.from_regex(PATTERN, fullmatch=True))
def test_every_scenario_is_read_or_refused_in_words(scenario: str) -> None:
    said = ""
    try:
        size = size_of(scenario)
    except UnsupportedTraffic as refusal:
        said = refusal.message
    else:
        assert size.modality is modality_of(scenario)
        assert size.num_input_tokens >= 1
    assert not said or repr(scenario) in said


@given(width=st.integers(1, 70), height=st.integers(1, 70), seed=st.integers())
def test_an_image_is_a_png_of_its_size(width: int, height: int, seed: int) -> None:
    content = draw_image(width, height, random.Random(seed))

    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(content[16:20]) == width
    assert int.from_bytes(content[20:24]) == height
    assert content != draw_image(width, height, random.Random(seed + 1))


def test_bodies_are_those_that_engines_take() -> None:
    def body(scenario: str, batch_size: int = 1) -> bytes:
        return make_body(size_of(scenario, batch_size), RNG, Conversation(), "m", {"user": "u"})

    inputs = json.loads(body("E(5)", 3))
    ranked = json.loads(body("R(7,2)", 4))
    chat = json.loads(body("I(40,20,2)"))

    assert {len(text.split()) for text in inputs["input"]} == {5}
    assert (len(inputs["input"]), inputs["user"], inputs["model"]) == (3, "u", "m")
    assert {len(text.split()) for text in ranked["documents"]} == {7}
    assert (len(ranked["documents"]), len(ranked["query"].split())) == (4, 2)
    assert [part["type"] for part in chat["messages"][0]["content"]] == [
        *("text", "image_url", "image_url")
    ]
    assert "max_tokens" not in inputs | ranked
    assert chat["max_tokens"] == 100


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"results": [{"index": 0}, {"index": 1}], "usage": {"total_tokens": 30}}, 30),
        ({"results": [{"index": 0}, {"index": 1}], "usage": {"prompt_tokens": 9.0}}, 9),
        ([{"index": 1, "meta_info": {"prompt_tokens": 8}}, {"index": 0, "meta_info": {}}], None),
        ([{"index": n, "score": 1, "meta_info": {"prompt_tokens": 8}} for n in (0, 1)], 16),
        ({"results": [{"index": 0, "relevance_score": 0.5}, {"index": 1}]}, None),
    ],
    ids=["vllm", "llama.cpp", "sglang, of one", "sglang", "cohere"],
)
def test_rankings_of_all_forms_are_read(answer: object, tokens: int | None) -> None:
    size = size_of("R(10,5)", 2)

    sample = read_whole_answer(json.dumps(answer).encode(), size, 0.25)

    assert sample.num_input_tokens == (30 if tokens is None else tokens)
    assert sample.tokens_estimated is (tokens is None)
    assert (sample.ttft, sample.tpot, sample.num_output_tokens) == (None, None, None)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"data": []}', b'{"data": [1, 2, 3]}', b'{"results": 3}', b"\xff"]
)
@pytest.mark.parametrize("scenario", ["E(4)", "R(4,4)"])
def test_answer_without_a_result_for_each_fails(scenario: str, content: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        read_whole_answer(content, size_of(scenario, 2), 0.1)


def test_items_are_counted_and_tokens_of_answers_are_not() -> None:
    level = make_level()
    metrics = with_gpus(aggregate([level]), 2)

    assert (level.requests_per_second, level.items_per_second) == (2.0, 16.0)
    assert level.mean_output_throughput_tokens_per_s is None
    assert level.stats.ttft is level.stats.num_output_tokens is None
    assert (metrics.mean_items_per_second, metrics.max_items_per_second_per_gpu) == (16.0, 8.0)
    assert metrics.mean_total_throughput == level.mean_input_throughput_tokens_per_s == 1024.0
    absent = (metrics.mean_ttft, metrics.mean_tpot, metrics.mean_output_throughput)
    assert absent == (None, None, None)
    assert metrics.max_output_throughput is metrics.mean_output_throughput_per_gpu is None


def test_repeats_of_a_load_pool_their_items() -> None:
    [pooled] = pool_levels([make_level(requests=4), make_level(requests=8)])

    assert (pooled.num_completed_requests, pooled.batch_size) == (12, 8)
    assert pooled.items_per_second == 24.0
    assert pooled.stats.ttft is None


def test_failed_level_counts_as_no_items() -> None:
    failed = replace(make_level(), num_completed_requests=0)

    assert aggregate([make_level(), failed]).mean_items_per_second == 8.0


def test_faster_engine_would_do_more_items() -> None:
    lagging = replace(make_level(), client_lag_mean_seconds=0.05, client_lag_p99_seconds=0.05)

    assert (fastest_level(lagging).items_per_second or 0) > 16.0
    assert fastest_level(lagging).mean_output_throughput_tokens_per_s is None


@pytest.mark.parametrize(
    ("scenario", "batch", "text"),
    [
        ("E(64)", 8, "each request had 8 inputs"),
        ("R(1,2)", 1, "each request had 1 document"),
        ("I(640,480,3)", 1, "each request had 3 images of 640 x 480 pixels"),
        ("I(640,480)", 1, "each request had 1 image of 640 x 480 pixels"),
        ("D(1,2)", 1, ""),
    ],
)
def test_what_each_request_had_is_said(scenario: str, batch: int, text: str) -> None:
    assert request_text(make_level(scenario, batch_size=batch)) == text


@pytest.mark.parametrize(
    ("tool", "asked", "path", "said"),
    [
        ("builtin", {"turns": 2}, "turns", "expected no turns with embeddings"),
        ("builtin", {"trace": TraceSpec(path="t")}, "trace", "no tool can send"),
        ("aiperf", {"dataset": DatasetSpec(path="d")}, "dataset", "no tool can send"),
        ("aiperf", {"prefix_share": 0.5}, "prefix_share", "no tool can send"),
        ("genai-bench", {"num_concurrency": (4,)}, "num_concurrency", "'builtin' or 'aiperf'"),
        ("genai-bench", {"arrivals": ("poisson(2)",)}, "arrivals", "'builtin' or 'aiperf'"),
        ("builtin", {"task": "text-to-rerank"}, "task", "'text-to-embeddings'"),
        ("builtin", {"additional_params": {"input": "x"}}, "additional_params.input", "'input'"),
        (
            "aiperf",
            {"traffic_scenarios": ("E(4)", "R(4,4)")},
            "traffic_scenarios",
            "a task of its own",
        ),
        (
            "builtin",
            {"traffic_scenarios": ("D(4,4)",), "batch_size": 2},
            "batch_size",
            "expected no batch_size with text",
        ),
        (
            "builtin",
            {"traffic_scenarios": ("I(64,64)",), "turns": 2},
            "turns",
            "expected no turns with images",
        ),
    ],
)
def test_what_a_tool_cannot_do_is_refused_in_words(
    tool: str, asked: dict[str, object], path: str, said: str
) -> None:
    given_spec: dict[str, object] = {"traffic_scenarios": ("E(64)",), **asked}
    spec = BenchmarkSpec(tool=BenchmarkTool(tool), **given_spec)  # type: ignore[arg-type]  # any

    with pytest.raises(UnsupportedTraffic, match=re.escape(said)) as refusal:
        CHECKS.get(spec.tool, check_generated)(spec)

    assert refusal.value.path == f"$.benchmark.{path}"


def test_every_tool_serves_its_plain_modalities() -> None:
    scenarios = {"text": "D(4,4)", "images": "I(8,8)", "embeddings": "E(4)", "rerank": "R(4,2)"}
    for tool, by_modality in ABILITIES.items():
        for modality in by_modality:
            spec = BenchmarkSpec(tool=tool, traffic_scenarios=(scenarios[modality.value],))
            CHECKS.get(tool, check_generated)(spec)
            CHECKS.get(tool, check_generated)(replace(spec, task=modality.traits.task))


def test_the_table_knows_every_name_that_is_asked() -> None:
    everything = BenchmarkSpec(
        num_concurrency=(2,),
        arrivals=("poisson(1)",),
        batch_size=2,
        turns=2,
        prefix_share=0.1,
        adapters=("a",),
    )
    known = {
        name for by_modality in ABILITIES.values() for each in by_modality.values() for name in each
    }

    assert set(list_asked(everything)) <= known


def test_simulated_engine_counts_words_and_images() -> None:
    parts = [
        {"type": "text", "text": "what is this"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    chat = ChatRequest(messages=[])
    with_image = json.dumps({"messages": [{"role": "user", "content": parts}]})
    asked = msgspec.json.decode(with_image, type=ChatRequest)
    assert (chat.num_items, asked.num_items) == (0, 1)
    assert asked.prompt_tokens == 3 + 256
    assert len(EmbeddingsRequest(input=["a b", "c"]).prompt) == 3
    assert len(RerankRequest(query="q r", documents=["a b", "c"]).prompt) == 7


@pytest.mark.parametrize(
    ("asked", "tool"),
    [
        ({"traffic_scenarios": ("E(8)",)}, BenchmarkTool.GENAI_BENCH),
        ({"traffic_scenarios": ("E(8)",), "num_concurrency": (4,)}, BenchmarkTool.BUILTIN),
        ({"arrivals": ("poisson(2)",)}, BenchmarkTool.BUILTIN),
        ({"tool": BenchmarkTool.AIPERF}, BenchmarkTool.AIPERF),
    ],
)
def test_auto_is_the_first_tool_that_can(
    asked: dict[str, Any], tool: BenchmarkTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(present, "list_installed_tools", lambda: tuple(present.ADAPTERS))

    assert present.choose_tool(BenchmarkSpec(**asked)) is tool
