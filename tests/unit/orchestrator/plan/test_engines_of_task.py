"""A task over several engines in an installation."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode
from services.orchestrator.domain.installation.offers import Offer
from services.orchestrator.domain.plan.plan import Plan, refuse_missing
from shared.errors import MISTAKES, RefusedError
from tests.support.worlds.orchestrator_records import (
    ENGINE_RULES,
    make_file,
    make_offer,
    make_plan,
)

VARIABLES = ("VLLM_*", "NCCL_*", "NCCL_TOPO_FILE")
BOTH: list[dict[str, Any]] = [
    {
        "base_runtime": "vllm",
        "runtime_image_tag": ["v0.17.0", "v0.18.0"],
        "parameters": {"max-num-seqs": [64, 128]},
        "env": {"VLLM_USE_V1": [None, 1]},
    },
    {"base_runtime": "sglang", "parameters": {"max-running-requests": [64, 128]}},
]


def offer(executor_id: str = "n1", **changes: Any) -> Offer:
    made = make_offer(executor_id, **changes)
    runtimes = (replace(runtime, task_variables=VARIABLES) for runtime in made.runtimes)
    return replace(made, runtimes=tuple(runtimes))


def plan_of(
    engines: list[dict[str, Any]] | None = None,
    offers: list[Offer] | None = None,
    **overrides: Any,
) -> Plan:
    file = make_file(deployment_mode="docker", engines=engines or BOTH, **overrides)
    return make_plan(file, offers or [offer()])


def refusals(engines: list[dict[str, Any]], **overrides: Any) -> dict[str | None, str]:
    with pytest.raises(RefusedError) as refused:
        plan_of(engines, **overrides)
    error = refused.value
    listed = error.details.get(MISTAKES) or [{"path": error.path, "message": error.message}]
    return {mistake["path"]: mistake["message"] for mistake in listed}


def test_each_experiment_has_its_own_engine_and_flags() -> None:
    plan = plan_of(parameters={"tp": [1, 2]})

    specs = [experiment.engine for experiment in plan.experiments]
    assert plan.total == 2 * (2 * 2 * 2) + 2 * 2
    assert {(spec.engine, spec.image_tag) for spec in specs} == {
        ("vllm", "v0.17.0"),
        ("vllm", "v0.18.0"),
        ("sglang", None),
    }
    for spec in specs:
        flags = set(spec.parameters)
        if spec.engine == "vllm":
            assert flags == {"tensor-parallel-size", "max-num-seqs"}
            assert spec.env in ({}, {"VLLM_USE_V1": "1"})
        else:
            assert flags == {"tp", "max-running-requests"} or flags == {
                "tp-size",
                "max-running-requests",
            }
            assert spec.env == {}


def test_experiments_show_engine_tag_and_variables() -> None:
    shown = [experiment.parameters for experiment in plan_of().experiments]

    assert shown[0] == {
        "base_runtime": "vllm",
        "runtime_image_tag": "v0.17.0",
        "env.VLLM_USE_V1": None,
        "max-num-seqs": 64,
    }
    assert {"base_runtime": "sglang", "max-running-requests": 64} in shown


def test_flag_of_another_engine_is_refused_at_its_place() -> None:
    engines = [{"base_runtime": "vllm"}, {**BOTH[1], "parameters": {"max-num-seqs": [1]}}]

    [(path, message)] = refusals(engines).items()

    assert path == "$.engines[1].parameters.max-num-seqs"
    assert "what a task may give sglang" in message


def test_common_flag_has_to_fit_every_engine() -> None:
    found = refusals(
        [{"base_runtime": "vllm"}, {"base_runtime": "sglang"}], parameters={"max-num-seqs": [1]}
    )

    assert list(found) == ["$.parameters.max-num-seqs"]


def test_misspelt_engine_is_refused_by_its_place() -> None:
    [(path, message)] = refusals([{"base_runtime": "vlm"}, {"base_runtime": "sglang"}]).items()

    assert path == "$.engines[0].base_runtime"
    assert "did you mean 'vllm'" in message


def test_engine_that_is_not_here_is_left_out_and_noted() -> None:
    plan = plan_of(offers=[offer(docker=("sglang",), missing={"vllm": "no image of it"})])

    assert {experiment.engine.engine for experiment in plan.experiments} == {"sglang"}
    assert [experiment.ordinal for experiment in plan.experiments] == [1, 2]
    assert (plan.total, plan.missing) == (2, ())
    left_out = [note for note in plan.notes if "is left out" in note]
    assert len(left_out) == 2
    assert left_out[0].startswith("vLLM v0.17.0 is left out: no executor runs engine 'vllm'")


def test_task_is_refused_where_no_engine_is_here() -> None:
    plan = plan_of(offers=[offer(docker=(), missing={"vllm": "no", "sglang": "none"})])

    with pytest.raises(RefusedError) as refused:
        refuse_missing(plan)

    assert refused.value.code is ErrorCode.UNSUPPORTED
    assert len(refused.value.details["missing"]) >= 2


def test_search_plans_samples_of_each_engine() -> None:
    plan = plan_of(optimization={"strategy": "bayesian", "max_iterations": 7})

    assert plan.experiments_at_most == 7
    assert plan.total == 2 * 2 * 2 + 2
    assert plan.search is not None
    assert len(plan.search.space.engines) == 2


@pytest.mark.parametrize(
    ("variables", "path", "why"),
    [
        ({"LD_PRELOAD": ["x"]}, "$.engines[0].env.LD_PRELOAD", "a task may set VLLM_*"),
        ({"NCCL_NET_PLUGIN": ["x"]}, "$.engines[0].env.NCCL_NET_PLUGIN", "PLUGIN in its name"),
        ({"NCCL_ALGO": ["/etc/x"]}, "$.engines[0].env.NCCL_ALGO", "without '/'"),
        ({"NCCL_ALGO": ["a b"]}, "$.engines[0].env.NCCL_ALGO", "without '/' and blanks"),
    ],
)
def test_variable_that_is_not_a_tasks_is_refused(
    variables: dict[str, Any], path: str, why: str
) -> None:
    found = refusals([{"base_runtime": "vllm", "env": variables}, {"base_runtime": "sglang"}])

    assert list(found) == [path]
    assert why in found[path]


def test_variable_allowed_by_name_is_set() -> None:
    engines = [{"base_runtime": "vllm"}, {"base_runtime": "sglang"}]

    plan = plan_of(engines, env={"NCCL_TOPO_FILE": ["a.xml"], "NCCL_P2P_DISABLE": [True, None]})

    assert [experiment.engine.env for experiment in plan.experiments[:2]] == [
        {"NCCL_TOPO_FILE": "a.xml", "NCCL_P2P_DISABLE": "1"},
    ] * 2
    assert plan.experiments[2].engine.env == {"NCCL_TOPO_FILE": "a.xml"}


def test_executor_without_a_list_allows_no_variable() -> None:
    with pytest.raises(RefusedError, match="a task may set none"):
        make_plan(make_file(env={"NCCL_ALGO": ["Ring"]}), [make_offer()])


@pytest.mark.parametrize(
    ("engines", "common", "path"),
    [
        ([{"base_runtime": "vllm"}, {"base_runtime": "VLLM"}], {}, "$.engines[1]"),
        (
            [
                {"base_runtime": "vllm", "runtime_image_tag": ["v1", "v2"]},
                {"base_runtime": "vllm", "runtime_image_tag": ["v2"]},
            ],
            {},
            "$.engines[1].runtime_image_tag[0]",
        ),
        (
            [{"base_runtime": "vllm", "parameters": {"tensor_parallel_size": [1]}}],
            {"parameters": {"tp": [1]}},
            "$.engines[0].parameters.tensor_parallel_size",
        ),
        (
            [{"base_runtime": "vllm", "env": {"NCCL_ALGO": ["Ring"]}}],
            {"env": {"NCCL_ALGO": ["Tree"]}},
            "$.engines[0].env.NCCL_ALGO",
        ),
        (
            [{"base_runtime": "vllm", "runtime_image_tag": ["v1 "]}],
            {},
            "$.engines[0].runtime_image_tag[0]",
        ),
    ],
)
def test_engines_that_cannot_be_told_apart_are_refused(
    engines: list[dict[str, Any]], common: dict[str, Any], path: str
) -> None:
    assert path in refusals(engines, **common)


def test_tags_make_no_difference_to_a_process() -> None:
    engines = [{"base_runtime": "simulated", "runtime_image_tag": ["v1", "v2"]}]

    with pytest.raises(RefusedError, match="starts the program") as refused:
        make_plan(make_file(engines=engines), [offer()])

    assert refused.value.path == "$.engines[0].runtime_image_tag"


def test_one_tool_measures_all_engines() -> None:
    def node(executor_id: str, engine: str, *tools: str) -> Offer:
        runtime = RuntimeOffer(runtime=Runtime.DOCKER, engines=(engine,), engine_rules=ENGINE_RULES)
        return Offer(executor_id=executor_id, runtimes=(runtime,), benchmark_tools=tools)

    offers = [node("n1", "vllm", "genai-bench", "builtin"), node("n2", "sglang", "builtin")]

    plan = plan_of([{"base_runtime": "vllm"}, {"base_runtime": "sglang"}], offers)

    assert plan.benchmark_tool is BenchmarkTool.BUILTIN
    assert {experiment.request.node_ids for experiment in plan.experiments} == {("n1",), ("n2",)}


def test_an_engine_serves_its_own_model() -> None:
    engines: list[dict[str, Any]] = [
        {"base_runtime": "vllm", "model": {"id_or_path": "org/m-AWQ"}},
        {"base_runtime": "vllm"},
    ]

    plan = plan_of(engines)

    assert [experiment.engine.model for experiment in plan.experiments] == ["org/m-AWQ", "a-model"]
    assert [experiment.parameters["model"] for experiment in plan.experiments] == [
        "org/m-AWQ",
        "a-model",
    ]
    assert any("base_runtime" in note or "model" in note for note in plan.notes)


def test_mode_is_the_same_for_all_engines() -> None:
    file = make_file(engines=BOTH, deployment_mode=None)

    plan = make_plan(file, [offer()])

    assert plan.mode is DeploymentMode.DOCKER


def test_configurations_that_cannot_start_are_left_out_of_a_grid() -> None:
    parameters = {"enable-hierarchical-cache": [True, False], "disable-radix-cache": [True, False]}
    file = make_file(deployment_mode="docker", base_runtime="sglang", parameters=parameters)

    plan = make_plan(file, [offer()])

    assert [experiment.ordinal for experiment in plan.experiments] == [1, 2, 3]
    [note] = [note for note in plan.notes if "left out" in note]
    assert note.startswith(
        "1 configuration left out: 'enable-hierarchical-cache': does not go with"
    )


def test_task_is_refused_where_no_configuration_can_start() -> None:
    parameters = {"speculative-algorithm": ["EAGLE3"]}
    file = make_file(deployment_mode="docker", base_runtime="sglang", parameters=parameters)

    with pytest.raises(RefusedError, match="speculative-draft-model-path") as refused:
        make_plan(file, [offer()])

    assert refused.value.path == "$.parameters.speculative-algorithm"


def test_search_proposes_nothing_that_cannot_start() -> None:
    parameters = {"enable-hierarchical-cache": [True, False], "disable-radix-cache": [True, False]}
    file = make_file(
        deployment_mode="docker",
        base_runtime="sglang",
        parameters=parameters,
        optimization={"strategy": "random"},
    )

    plan = make_plan(file, [offer()])

    assert plan.search is not None
    places = plan.search.space.places()
    possible = [
        place for place in places if plan.planner.is_possible(plan.search.space.point(place))
    ]
    assert len(possible) == 3
