"""Tasks of embeddings, rerank and images: what is measured of them, and what their engine needs."""

from typing import Any

import pytest

from schemas.executor.engine_rules import EngineRules
from schemas.task.benchmark import BenchmarkTool
from schemas.task.modality import Modality
from services.orchestrator.domain.plan.benchmark_plan import benchmark_spec
from services.orchestrator.domain.plan.engine_parameters import engine_parameters
from services.orchestrator.domain.plan.expansion import find_axes
from services.orchestrator.domain.search.space import space_of
from shared.engines.table import PROFILES
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_offer, make_plan

EMBEDDINGS = {"traffic_scenarios": ["E(64)"], "batch_size": 8}


@pytest.mark.parametrize("scenario", ["E(64)", "R(64,8)"])
@pytest.mark.parametrize(
    ("asked", "path", "said"),
    [
        (
            {"optimization": {"objective": "minimize_ttft"}},
            "$.optimization.objective",
            "minimize_latency",
        ),
        (
            {"optimization": {"objectives": ["minimize_latency", "maximize_tokens_per_joule"]}},
            "$.optimization.objective",
            "got maximize_tokens_per_joule",
        ),
        (
            {"optimization": {"constraints": "e2e:p99<1s, ttft:p99<300ms"}},
            "$.optimization.constraints",
            "got ttft:p99<300ms",
        ),
        (
            {"optimization": {"constraints": "output_throughput>5"}},
            "$.optimization.constraints",
            "constraints on e2e",
        ),
        ({"slo": {"tpot": {"threshold": 0.1}}}, "$.slo.tpot", "an SLO on latency alone"),
    ],
)
def test_measures_of_tokens_are_refused_in_words(
    scenario: str, asked: dict[str, Any], path: str, said: str
) -> None:
    file = make_file(benchmark={"traffic_scenarios": [scenario]}, **asked)

    with pytest.raises(RefusedError) as refused:
        make_plan(file, OFFERS)

    assert refused.value.path == path
    assert said in refused.value.message
    assert "come whole and have no tokens" in refused.value.message


def test_items_of_a_chat_are_refused_in_words() -> None:
    with pytest.raises(RefusedError, match="come token by token, got items>5"):
        make_plan(make_file(optimization={"constraints": "items>5"}), OFFERS)


@pytest.mark.parametrize(
    "asked",
    [
        {"optimization": {"objective": "maximize_throughput", "constraints": "items>5/s"}},
        {"optimization": {"objective": "maximize_goodput", "constraints": "e2e:p99<1s"}},
        {"slo": {"latency": {"p99": {"threshold": 1.0}}}},
    ],
)
def test_latency_and_items_are_measured(asked: dict[str, Any]) -> None:
    assert make_plan(make_file(benchmark=EMBEDDINGS, **asked), OFFERS).experiments


def test_images_keep_every_measure() -> None:
    goals = {"objective": "minimize_ttft", "constraints": "tpot:p99<1s"}
    file = make_file(benchmark={"traffic_scenarios": ["I(64,64,2)"]}, optimization=goals)

    assert make_plan(file, OFFERS).experiments


def test_auto_is_builtin_where_genai_bench_sends_one_by_one() -> None:
    offers = [make_offer("n1", tools=("genai-bench", "builtin"))]
    at_once = {**EMBEDDINGS, "num_concurrency": [4]}

    assert (
        make_plan(make_file(benchmark=EMBEDDINGS), offers).benchmark_tool
        is BenchmarkTool.GENAI_BENCH
    )
    assert make_plan(make_file(benchmark=at_once), offers).benchmark_tool is BenchmarkTool.BUILTIN


def test_batch_reaches_the_executor_and_no_answer_is_compared() -> None:
    task = make_file(benchmark=EMBEDDINGS, parameters={"answer-drift": [0.0, 0.5]})

    spec = benchmark_spec(task, BenchmarkTool.BUILTIN)

    assert (spec.batch_size, spec.modality) == (8, Modality.EMBEDDINGS)
    assert spec.quality is None


def flags_of(engine: str, modality: Modality, **own: Any) -> tuple[dict[str, Any], list[str]]:
    profile = PROFILES[engine]
    rules = EngineRules(task_fields=dict(profile.task_fields), allowed=("*",))
    parameters = {name: [value] for name, value in own.items()}
    point = space_of(find_axes(make_file(parameters=parameters))).point((0,) if own else ())
    given, missing, notes = engine_parameters(engine, rules, point, None, modality)
    return given, [each.sentence for each in missing] + notes


@pytest.mark.parametrize(
    ("engine", "modality", "flags"),
    [
        ("vllm", Modality.EMBEDDINGS, {"runner": "pooling"}),
        ("vllm", Modality.RERANK, {"runner": "pooling"}),
        ("sglang", Modality.EMBEDDINGS, {"is-embedding": True}),
        ("llamacpp", Modality.EMBEDDINGS, {"embeddings": True}),
        ("llamacpp", Modality.RERANK, {"reranking": True}),
        ("vllm", Modality.IMAGES, {}),
        ("simulated", Modality.RERANK, {}),
    ],
)
def test_engine_gets_the_flags_that_it_needs(
    engine: str, modality: Modality, flags: dict[str, Any]
) -> None:
    given, said = flags_of(engine, modality)

    assert given == flags
    assert bool(said) is bool(flags)


def test_a_flag_of_the_task_goes_before_ours() -> None:
    assert flags_of("vllm", Modality.EMBEDDINGS, task="embed") == ({"task": "embed"}, [])


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("sglang", "cross-encoders need is-embedding: true"),
        ("trtllm", "engine 'trtllm' is not known to answer rerank here"),
        ("lmdeploy", "is not known to answer rerank"),
    ],
)
def test_what_an_engine_lacks_is_told(engine: str, said: str) -> None:
    given, sentences = flags_of(engine, Modality.RERANK)

    assert given == {}
    assert any(said in sentence for sentence in sentences)
