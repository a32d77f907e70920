from typing import Any

import pytest
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.executor.engine_rules import EngineRules, TaskField
from schemas.gpus.checks import CudaRules, Verdict
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode, TaskFile
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.installation.offers import Offer
from services.orchestrator.domain.plan.benchmark_plan import benchmark_spec
from services.orchestrator.domain.plan.engine_fields import translate_fields
from services.orchestrator.domain.plan.plan import Plan, refuse_missing
from services.orchestrator.domain.plan.planner import choose_mode
from services.orchestrator.domain.search.front_trust import MAX_FRONT_MEMBERS
from services.orchestrator.domain.search.trust import MAX_CHECKS
from shared.errors import MISTAKES, RefusedError
from tests.support.worlds.orchestrator_records import (
    ENGINE_RULES,
    OFFERS,
    make_file,
    make_offer,
    make_plan,
)


def plan(**overrides: Any) -> Plan:
    return make_plan(make_file(**overrides), OFFERS)


@pytest.mark.parametrize(
    ("overrides", "want"),
    [
        pytest.param({"base_runtime": "sglang"}, DeploymentMode.DOCKER, id="a known engine"),
        pytest.param({"base_runtime": "vLLM"}, DeploymentMode.DOCKER, id="in any case"),
        pytest.param({"base_runtime": "my-runtime"}, DeploymentMode.OME, id="a cluster runtime"),
        pytest.param(
            {"base_runtime": "sglang", "clusterbasemodel_config": {"preset": "x"}},
            DeploymentMode.OME,
            id="a cluster model",
        ),
        pytest.param(
            {"base_runtime": "sglang", "clusterservingruntime_config": {"preset": "x"}},
            DeploymentMode.OME,
            id="a serving runtime",
        ),
        pytest.param(
            {"base_runtime": "sglang", "storage": {"type": "pvc", "pvc_name": "x"}},
            DeploymentMode.OME,
            id="a volume claim",
        ),
        pytest.param(
            {"base_runtime": "sglang", "storage": {"type": "hostpath"}},
            DeploymentMode.DOCKER,
            id="a path of the host",
        ),
        pytest.param(
            {"base_runtime": "simulated", "deployment_mode": "process"},
            DeploymentMode.PROCESS,
            id="said",
        ),
    ],
)
def test_the_mode_follows_from_the_task(overrides: dict[str, Any], want: DeploymentMode) -> None:
    task = make_file(**{"deployment_mode": None, **overrides})

    assert choose_mode(task, Installation(OFFERS)) is want


@pytest.mark.parametrize(
    ("overrides", "mode", "engine"),
    [
        pytest.param({}, DeploymentMode.DOCKER, "my-Engine", id="mode not given"),
        pytest.param({"base_runtime": "MY-engine"}, DeploymentMode.DOCKER, "my-Engine", id="case"),
        pytest.param({"deployment_mode": "docker"}, DeploymentMode.DOCKER, "my-Engine", id="said"),
        pytest.param(
            {"clusterbasemodel_config": {"preset": "x"}},
            DeploymentMode.OME,
            "my-Engine",
            id="a cluster's",
        ),
        pytest.param(
            {"base_runtime": "MY-engine", "clusterbasemodel_config": {"preset": "x"}},
            DeploymentMode.OME,
            "my-Engine",
            id="a cluster's, by case",
        ),
    ],
)
@pytest.mark.parametrize("is_startable", [True, False])
def test_offers_make_an_operators_engine_known(
    overrides: dict[str, Any], mode: DeploymentMode, engine: str, is_startable: bool
) -> None:
    task = make_file(**{"base_runtime": "my-Engine", "deployment_mode": None, **overrides})
    offer = (
        make_offer(docker=("my-Engine",))
        if is_startable
        else make_offer(docker=(), missing={"my-Engine": "pull its image first"})
    )

    planned = make_plan(task, (offer,))

    assert (planned.mode, planned.experiments[0].engine.engine) == (mode, engine)
    if mode is DeploymentMode.DOCKER:
        assert [m.path for m in planned.missing] == ([] if is_startable else ["$.deployment_mode"])
        assert is_startable or "(n1: pull its image first)" in planned.missing[0].sentence


@pytest.mark.parametrize("value", ["auto", 1, False])
def test_engine_defaults_need_no_parameter(value: object) -> None:
    rules = EngineRules(task_fields={"it": TaskField(flag="it")})

    assert translate_fields(rules, "parallel_config", {"it": value}).parameters == {}
    assert translate_fields(rules, "parallel_config", {"it": True}).parameters == {"it": True}
    assert translate_fields(rules, "parallel_config", {"it": 2}).parameters == {"it": 2}


def test_unoffered_engine_is_a_cluster_runtime() -> None:
    task = make_file(base_runtime="my-engine", deployment_mode=None)

    assert make_plan(task, (make_offer(),)).mode is DeploymentMode.OME
    with pytest.raises(RefusedError, match="expected one of llamacpp, lmdeploy, mine"):
        make_plan(
            make_file(base_runtime="my-engine", deployment_mode="docker"),
            (make_offer(docker=("mine",)),),
        )


def test_missing_part_says_how_and_where_to_get_it() -> None:
    lacking = [
        make_offer(f"n{n}", docker=(), missing={"docker": "start dockerd"}) for n in range(1, 8)
    ]

    planned = make_plan(make_file(base_runtime="simulated", deployment_mode="docker"), lacking)

    [missing] = planned.missing
    assert missing.sentence == (
        "no executor runs mode 'docker' (n1, n2, n3, n4, n5 and 2 more: start dockerd); "
        "in mode 'process' it runs on n1, n2, n3, n4, n5 and 2 more"
    )


@pytest.mark.parametrize("tag", ["v0.5.2-cu126", "latest", "_x", "1" * 128])
def test_an_image_tag_reaches_every_experiment(tag: str) -> None:
    task = make_file(base_runtime="sglang", deployment_mode="docker", runtime_image_tag=tag)

    assert {e.engine.image_tag for e in make_plan(task, (make_offer(),)).experiments} == {tag}


@pytest.mark.parametrize(("mode", "said"), [("process", True), ("docker", False)])
def test_unused_image_tag_is_noted(mode: str, said: bool) -> None:
    tagged = plan(base_runtime="simulated", deployment_mode=mode, runtime_image_tag="latest")
    bare = plan(base_runtime="simulated", deployment_mode=mode)

    assert any("runtime_image_tag is not used" in note for note in tagged.notes) is said
    assert not any("runtime_image_tag" in note for note in bare.notes)


@pytest.mark.parametrize("tag", ["", "a b", "-x", ".x", "v1@sha256:0", "a/b", "x:y", "1" * 129])
def test_bad_image_tag_is_refused_by_path(tag: str) -> None:
    with pytest.raises(RefusedError) as refused:
        plan(runtime_image_tag=tag)

    assert (refused.value.code, refused.value.path) == (
        ErrorCode.BAD_REQUEST,
        "$.runtime_image_tag",
    )


def test_nodes_share_the_gpus_of_an_experiment() -> None:
    task = make_file(gpus={"num_nodes": 2}, parameters={"tp-size": [4, 8]})

    planned = make_plan(task, (make_offer("n1"), make_offer("n2")))

    assert [(e.request.gpus, e.request.nodes) for e in planned.experiments] == [(2, 2), (4, 2)]
    assert planned.missing == ()


def test_more_nodes_than_can_run_it_are_missing() -> None:
    planned = plan(gpus={"num_nodes": 2, "count": 4})

    [missing] = planned.missing
    assert (missing.path, planned.experiments[0].request.gpus) == ("$.gpus.num_nodes", 2)
    assert missing.sentence.endswith("are 1: n1")


def test_unevenly_shared_gpus_are_refused() -> None:
    with pytest.raises(RefusedError, match="divides the 3 GPUs") as refused:
        plan(gpus={"num_nodes": 2}, parameters={"tp-size": [2, 3]})

    assert refused.value.path == "$.gpus.num_nodes"


def test_a_task_that_can_run_here_lacks_nothing() -> None:
    planned = plan(parameters={"slots": [1, 2]})

    assert planned.missing == ()
    assert [e.engine.parameters for e in planned.experiments] == [{"slots": 1}, {"slots": 2}]
    assert {e.request.node_ids for e in planned.experiments} == {("n1",)}
    refuse_missing(planned)


@pytest.mark.parametrize(
    ("overrides", "path", "says"),
    [
        pytest.param(
            {"deployment_mode": "docker", "base_runtime": "sglang"},
            "$.deployment_mode",
            "no executor runs mode 'docker' (n1: no Docker here)",
            id="a mode",
        ),
        pytest.param(
            {"deployment_mode": None, "base_runtime": "my-runtime"},
            "$.base_runtime",
            "counts as a ClusterServingRuntime",
            id="a runtime nobody knows",
        ),
        pytest.param(
            {"base_runtime": "sglang"},
            "$.base_runtime",
            "no executor runs engine 'sglang' in mode 'process'",
            id="an engine",
        ),
        pytest.param(
            {
                "deployment_mode": "docker",
                "base_runtime": "sglang",
                "parallel_config": {"preset": "long-context"},
            },
            "$.deployment_mode",
            "engine 'sglang' has no flag for parallel_config.dcp",
            id="a preset",
        ),
        pytest.param(
            {"base_runtime": "llamacpp", "parallel_config": {"tp": [1, 2]}},
            "$.parallel_config.tp",
            "engine 'llamacpp' has no flag for parallel_config.tp",
            id="a flag",
        ),
        pytest.param(
            {"base_runtime": "llamacpp", "parallel_config": {"enable_expert_parallel": True}},
            "$.parallel_config.enable_expert_parallel",
            "engine 'llamacpp' has no flag for parallel_config.enable_expert_parallel",
            id="a switch",
        ),
        pytest.param(
            {
                "deployment_mode": "docker",
                "base_runtime": "vllm",
                "quant_config": {"gemm_dtype": ["fp8", "int8"]},
            },
            "$.deployment_mode",
            "engine 'vllm' takes auto, fp8, float16, bfloat16, float32 as quant_config.gemm_dtype, "
            "not 'int8'",
            id="a data type",
        ),
        pytest.param(
            {"benchmark": {"tool": "genai-bench"}},
            "$.benchmark.tool",
            "'genai-bench'",
            id="a tool",
        ),
        pytest.param({"gpus": {"nodes": ["n2"]}}, "$.gpus.nodes", "these do: n1", id="a node"),
    ],
)
def test_what_is_missing_is_said_by_field(overrides: dict[str, Any], path: str, says: str) -> None:
    planned = plan(**overrides)

    with pytest.raises(RefusedError) as refused:
        refuse_missing(planned)

    assert (refused.value.code, refused.value.path) == (ErrorCode.UNSUPPORTED, path)
    assert says in refused.value.message
    assert refused.value.details == {"missing": [m.sentence for m in planned.missing]}


def test_missing_executors_are_named() -> None:
    planned = make_plan(make_file(), ())

    assert [m.sentence for m in planned.missing] == ["no executor of this installation is present"]


def test_unknown_engine_is_refused_outside_clusters() -> None:
    with pytest.raises(RefusedError) as refused:
        plan(base_runtime="sglan")

    assert (refused.value.code, refused.value.path) == (ErrorCode.BAD_REQUEST, "$.base_runtime")
    assert "llamacpp, lmdeploy, sglang, simulated, trtllm, vllm" in refused.value.message


@pytest.mark.parametrize(
    ("engine", "overrides", "want"),
    [
        pytest.param(
            "sglang",
            {"parallel_config": {"tp": 2, "ep": 4}, "quant_config": {"kvcache_dtype": "fp8_e5m2"}},
            {"kv-cache-dtype": "fp8_e5m2", "tp-size": 2, "ep-size": 4},
            id="sglang",
        ),
        pytest.param(
            "vllm",
            {"parallel_config": {"tp": 2, "dcp": 2}, "quant_config": {"gemm_dtype": "fp8"}},
            {
                "quantization": "fp8",
                "tensor-parallel-size": 2,
                "decode-context-parallel-size": 2,
            },
            id="vllm",
        ),
        pytest.param(
            "vllm",
            {"quant_config": {"gemm_dtype": "bfloat16", "kvcache_dtype": "fp8_e4m3"}},
            {"dtype": "bfloat16", "kv-cache-dtype": "fp8_e4m3"},
            id="a type that is no quantization",
        ),
        pytest.param(
            "vllm",
            {"parallel_config": {"dp": 2, "enable_expert_parallel": [True, False]}},
            {"data-parallel-size": 2, "enable-expert-parallel": True},
            id="a switch",
        ),
        pytest.param(
            "sglang",
            {
                "parallel_config": {"moe_dense_tp": 2, "enable_expert_parallel": False},
                "quant_config": {"gemm_dtype": "float16", "kvcache_dtype": "fp8"},
            },
            {"dtype": "float16", "kv-cache-dtype": "fp8_e5m2", "moe-dense-tp-size": 2},
            id="sglang's own spelling",
        ),
        pytest.param(
            "sglang",
            {"quant_config": {"gemm_dtype": "bfloat16", "attention_dtype": "fp8"}},
            {"dtype": "bfloat16", "attention-backend": "flashinfer"},
            id="attention",
        ),
        pytest.param(
            "sglang",
            {"quant_config": {"gemm_dtype": "bfloat16", "moe_dtype": "w4afp8"}},
            {"dtype": "auto", "quantization": "w4afp8", "moe-runner-backend": "flashinfer_mxfp4"},
            id="experts in the place of gemm",
        ),
        pytest.param(
            "sglang",
            {"quant_config": {"gemm_dtype": "fp8", "moe_dtype": "fp8"}},
            {"quantization": "fp8"},
            id="experts as gemm",
        ),
        pytest.param(
            "sglang",
            {"quant_config": {"moe_dtype": "auto"}, "parameters": {"page-size": [1]}},
            {"page-size": 1},
            id="auto needs no flag",
        ),
    ],
)
def test_typed_blocks_become_the_engines_flags(
    engine: str, overrides: dict[str, Any], want: dict[str, Any]
) -> None:
    planned = plan(deployment_mode="docker", base_runtime=engine, **overrides)

    assert planned.experiments[0].engine.parameters == want
    assert [m.path for m in planned.missing] == ["$.deployment_mode"]


def test_own_parameter_replaces_that_of_a_block() -> None:
    planned = plan(
        deployment_mode="docker",
        base_runtime="sglang",
        parallel_config={"tp": 4},
        parameters={"tp_size": [2]},
    )

    [experiment] = planned.experiments
    assert experiment.engine.parameters == {"tp_size": 2}
    assert experiment.request.gpus == 2
    assert planned.notes == ("parameters.tp_size takes the place of 'tp-size' of parallel_config",)


@pytest.mark.parametrize(
    ("engine", "parameters", "want"),
    [
        ("vllm", {"tp-size": [2]}, {"tensor-parallel-size": 2}),
        ("vllm", {"tensor_parallel_size": [2]}, {"tensor_parallel_size": 2}),
        ("sglang", {"tensor-parallel-size": [2]}, {"tp-size": 2}),
        ("sglang", {"dcp-size": [2]}, {"dcp-size": 2}),
    ],
)
def test_parallelism_uses_the_engines_spelling(
    engine: str, parameters: dict[str, Any], want: dict[str, Any]
) -> None:
    planned = plan(deployment_mode="docker", base_runtime=engine, parameters=parameters)

    [experiment] = planned.experiments
    assert experiment.engine.parameters == want
    assert experiment.parameters == {name: values[0] for name, values in parameters.items()}
    assert experiment.request.gpus == (1 if "dcp-size" in parameters else 2)


def test_one_degree_in_two_spellings_is_refused() -> None:
    with pytest.raises(RefusedError, match="given twice") as refused:
        plan(
            deployment_mode="docker",
            base_runtime="vllm",
            parameters={"tp": [2], "tp_size": [4]},
        )

    assert refused.value.path == "$.parameters.tp_size"


def test_value_without_a_flag_is_left_out_and_noted() -> None:
    planned = plan(
        deployment_mode="docker",
        base_runtime="sglang",
        quant_config={"kvcache_dtype": ["int8", "auto"], "attention_dtype": "bfloat16"},
    )

    assert [e.engine.parameters for e in planned.experiments] == [{}, {}]
    assert planned.notes[1:] == (
        (
            "quant_config.kvcache_dtype 'int8': "
            "SGLang's KV cache is auto, bfloat16, fp8_e5m2 or fp8_e4m3"
        ),
        (
            "quant_config.attention_dtype 'bfloat16': "
            "SGLang has no flag for it, attention follows gemm_dtype"
        ),
    )


@pytest.mark.parametrize(
    ("engine", "parameters", "path", "says"),
    [
        pytest.param(
            "simulated",
            {"nope": [1]},
            "$.parameters.nope",
            "simulated has no parameter 'nope'; known: ttft-seconds, ",
            id="unknown",
        ),
        pytest.param(
            "simulated",
            {"slots": [1, 0]},
            "$.parameters.slots",
            "expected an integer >= 1, got 0",
            id="out of bounds",
        ),
        pytest.param(
            "vllm",
            {"port": [1]},
            "$.parameters.port",
            "'port' is set by the executor, not by a task",
            id="the executor's",
        ),
        pytest.param(
            "vllm",
            {"max_num_seqs": [1], "max-num-seqs": [2]},
            "$.parameters.max-num-seqs",
            "given twice",
            id="twice",
        ),
    ],
)
def test_forbidden_parameter_is_refused_before_a_run(
    engine: str, parameters: dict[str, Any], path: str, says: str
) -> None:
    mode = "process" if engine == "simulated" else "docker"

    with pytest.raises(RefusedError) as refused:
        plan(base_runtime=engine, deployment_mode=mode, parameters=parameters)

    assert (refused.value.code, refused.value.path) == (ErrorCode.BAD_REQUEST, path)
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("benchmark", "want"),
    [
        pytest.param(
            {"traffic_scenarios": ["D(1,1)"] * 64, "num_concurrency": [1] * 5},
            "$.benchmark.num_concurrency",
            id="more levels than the outcome's message holds",
        ),
        pytest.param(
            {"num_concurrency": [1, 10**9]},
            "$.benchmark.num_concurrency[1]",
            id="more requests at once than a host bears",
        ),
    ],
)
def test_excessive_benchmark_is_refused(benchmark: dict[str, Any], want: str) -> None:
    with pytest.raises(RefusedError) as refused:
        plan(benchmark=benchmark)

    assert (refused.value.code, refused.value.path) == (ErrorCode.BAD_REQUEST, want)


def test_notes_say_what_was_cut_and_assumed() -> None:
    planned = plan(
        deployment_mode=None,
        base_runtime="sglang",
        parameters={"page-size": [1, 2, 3]},
        optimization={"max_iterations": 2, "seed": 1},
        slo={"ttft": {"threshold": 1.0}},
    )

    assert planned.notes == (
        "deployment_mode is not given; 'docker' follows from the rest of the task",
        "max_iterations cuts the grid: 2 of 3 configurations are run",
        "n_initial_random and seed have no meaning for a grid, which draws nothing",
    )


@pytest.mark.parametrize(
    ("goals", "runs"),
    [
        ({"objective": "minimize_latency"}, MAX_CHECKS),
        ({"objectives": ["minimize_ttft", "maximize_throughput"]}, MAX_CHECKS + MAX_FRONT_MEMBERS),
    ],
)
def test_a_note_says_how_many_runs_trust_may_cost(goals: dict[str, Any], runs: int) -> None:
    planned = plan(parameters={"slots": [1, 2]}, optimization={"trust": True, **goals})

    assert any(note.startswith(f"trust: {runs} further runs") for note in planned.notes)


def test_minutes_of_the_task_file_become_seconds() -> None:
    spec = benchmark_spec(
        make_file(benchmark={"max_time_per_iteration": 10}), BenchmarkTool.BUILTIN
    )

    assert spec.max_time_per_level_seconds == 600


def roots_offer(node: str, *roots: str) -> Offer:
    runtime = RuntimeOffer(
        runtime=Runtime.PROCESS,
        engines=("simulated",),
        engine_rules=ENGINE_RULES,
        model_roots=roots,
    )
    return Offer(executor_id=node, runtimes=(runtime,), benchmark_tools=("builtin",))


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"model": {"id_or_path": "/etc"}}, "$.model.id_or_path"),
        ({"model": {"id_or_path": "/models/../etc"}}, "$.model.id_or_path"),
        ({"model": {"id_or_path": "../x"}}, "$.model.id_or_path"),
        ({"model": {"id_or_path": "s3://bucket/x"}}, "$.model.id_or_path"),
        ({"benchmark": {"model_tokenizer": "/etc"}}, "$.benchmark.model_tokenizer"),
        (
            {"benchmark": {"quality": {"accuracy_file": "/etc/passwd"}}},
            "$.benchmark.quality.accuracy_file",
        ),
    ],
)
def test_unreadable_model_is_refused_before_a_run(overrides: dict[str, Any], path: str) -> None:
    task = make_file(base_runtime="simulated", deployment_mode="process", **overrides)

    with pytest.raises(RefusedError) as refused:
        make_plan(task, (roots_offer("n1", "/models"), roots_offer("n2")))

    assert (refused.value.code, refused.value.path) == (ErrorCode.BAD_REQUEST, path)


def test_model_path_goes_to_nodes_with_its_root() -> None:
    task = make_file(
        base_runtime="simulated",
        deployment_mode="process",
        model={"id_or_path": "/models/a"},
    )

    planned = make_plan(task, (roots_offer("n1"), roots_offer("n2", "/data", "/models")))

    assert planned.experiments[0].request.node_ids == ("n2",)
    assert planned.missing == ()


def test_precision_becomes_a_required_capability() -> None:
    task = make_file(
        deployment_mode="docker",
        base_runtime="vllm",
        parameters={"dtype": ["half", "bfloat16"], "kv-cache-dtype": ["auto", "fp8"]},
    )

    planned = make_plan(task, (make_offer(),))

    asked = {
        (each.engine.parameters["dtype"], each.engine.parameters["kv-cache-dtype"]): (
            each.request.min_compute_capability
        )
        for each in planned.experiments
    }
    assert asked == {
        ("half", "auto"): None,
        ("half", "fp8"): "8.0",
        ("bfloat16", "auto"): "8.0",
        ("bfloat16", "fp8"): "8.0",
    }
    assert [note.split(":")[0] for note in planned.notes if "capability" in note] == [
        "kv-cache-dtype=fp8 needs compute capability 8.0",
        "dtype=bfloat16 needs compute capability 8.0",
    ]
    assert all("--dtype half" in note for note in planned.notes if "capability" in note)


def test_typed_block_requires_a_capability() -> None:
    (experiment,) = plan(
        deployment_mode="docker", base_runtime="vllm", quant_config={"gemm_dtype": "bfloat16"}
    ).experiments

    assert experiment.request.min_compute_capability == "8.0"


def telling_offer(executor_id: str = "n1", **told: Any) -> Offer:
    """One whose containers' runtime tells of models or images."""
    offer = make_offer(executor_id)
    process, docker = offer.runtimes
    return replace(offer, runtimes=(process, replace(docker, **told)))


def vllm_file(**overrides: Any) -> TaskFile:
    return make_file(**{"deployment_mode": "docker", "base_runtime": "vllm", **overrides})


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        pytest.param("org/llama", "8.0", id="by its name"),
        pytest.param("/models/org/llama", "8.0", id="by its path"),
        pytest.param("org/other", None, id="another"),
    ],
)
def test_config_precision_is_required_and_noted(name: str, capability: str | None) -> None:
    offer = telling_offer(model_roots=("/models/",), model_precisions={"org/llama": ("bfloat16",)})
    task = vllm_file(model={"id_or_path": name})

    (planned,) = make_plan(task, (offer,)).experiments

    assert planned.request.min_compute_capability == capability
    precisions = [each for each in planned.preflight if each.subject == "precision"]
    assert bool(precisions) is (capability is not None)
    assert all("--dtype half" in each.message for each in precisions)


def test_dtype_of_the_task_goes_first() -> None:
    offer = telling_offer(model_precisions={"a-model": ("bfloat16",)})

    planned = make_plan(vllm_file(parameters={"dtype": ["auto", "half"]}), (offer,))

    assert [each.request.min_compute_capability for each in planned.experiments] == ["8.0", None]


def test_converting_engine_requires_no_capability() -> None:
    offer = telling_offer(model_precisions={"a-model": ("bfloat16",)})

    (planned,) = make_plan(make_file(), (offer,)).experiments

    assert (planned.request.min_compute_capability, planned.preflight) == (None, ())


@pytest.mark.parametrize(
    ("rules", "tag", "least"),
    [
        pytest.param(CudaRules.STRICT, None, "12.8", id="the newest image of that name"),
        pytest.param(CudaRules.LENIENT, None, "12.0", id="any driver of its major version"),
        pytest.param(CudaRules.STRICT, "v1", "11.8", id="another tag"),
        pytest.param(CudaRules.STRICT, "v2-cu121", "12.1", id="only the tag tells"),
        pytest.param(CudaRules.STRICT, "v3", None, id="nothing tells"),
    ],
)
def test_image_needs_drivers_for_its_cuda(
    rules: CudaRules, tag: str | None, least: str | None
) -> None:
    offers = (
        telling_offer("n1", image_cuda={"vllm": "12.4", "vllm:v1": "11.8"}),
        telling_offer("n2", image_cuda={"vllm": "12.8"}),
    )

    (planned,) = make_plan(vllm_file(runtime_image_tag=tag), offers, rules).experiments

    assert [each.values for each in planned.request.require] == [(least,)] * (least is not None)
    (found,) = planned.preflight
    assert found.verdict is (Verdict.CASE_BY_CASE if least is None else Verdict.SUPPORTED)


@pytest.mark.parametrize(
    ("optimization", "note", "at_most"),
    [
        pytest.param(
            {"strategy": "random"},
            "strategy 'random': at most 12 of 12 configurations, drawn at random",
            12,
            id="a small space",
        ),
        pytest.param(
            {"strategy": "bayesian", "max_iterations": 8, "n_initial_random": 4},
            "strategy 'bayesian': at most 8 of 12 configurations, 4 drawn at random, then each from"
            " the measurements so far (Optuna's TPE)",
            8,
            id="said",
        ),
    ],
)
def test_search_plan_says_what_and_how_much(
    optimization: dict[str, Any], note: str, at_most: int
) -> None:
    slots = {"type": "integer", "low": 1, "high": 4}

    planned = plan(parameters={"slots": slots, "seed": [1, 2, 3]}, optimization=optimization)

    assert planned.notes[-1] == note
    assert (planned.experiments, planned.total, planned.experiments_at_most) == ((), 12, at_most)
    assert planned.missing == ()


def test_search_refuses_what_a_grid_refuses() -> None:
    slots = [*range(1, 60), "many"]
    grid = {"base_runtime": "llamacpp", "parameters": {"threads": [4], "parallel": slots}}

    for strategy in ("grid_search", "bayesian"):
        with pytest.raises(RefusedError) as refused:
            plan(**grid, optimization={"strategy": strategy})
        assert refused.value.path == "$.parameters.parallel"


@pytest.mark.parametrize("constraints", ["", "error_rate<1%, ttft:p99>=1ms"])
def test_goodput_needs_a_bound_on_time(constraints: str) -> None:
    with pytest.raises(RefusedError, match="bound a time") as refused:
        plan(optimization={"objective": "maximize_goodput", "constraints": constraints})

    assert refused.value.path == "$.optimization.constraints"


def test_all_mistakes_of_a_task_are_told_at_once() -> None:
    task = make_file(
        base_runtime="vllm",
        deployment_mode="docker",
        runtime_image_tag="a b",
        parameters={"tensor-paralel-size": [1, 2], "max-num-sequences": [8], "block-size": [16]},
        optimization={"constraints": "ttft:p99<300", "objective": "maximize_throughput"},
    )

    with pytest.raises(RefusedError) as refused:
        make_plan(task, (make_offer(),))

    found = {each["path"]: each["message"] for each in refused.value.details[MISTAKES]}
    assert list(found) == [
        *("$.runtime_image_tag", "$.optimization.constraints"),
        *("$.parameters.tensor-paralel-size", "$.parameters.max-num-sequences"),
    ]
    assert "did you mean 'tensor-parallel-size'?" in found["$.parameters.tensor-paralel-size"]
    assert refused.value.path == "$.runtime_image_tag"


def test_repeated_mistake_is_reported_once() -> None:
    task = make_file(parameters={"slots": [1, 2, 3], "nope": [1, 2]})

    with pytest.raises(RefusedError, match="no parameter 'nope'") as refused:
        make_plan(task, OFFERS)

    assert refused.value.details == {}


def test_misspelt_engine_is_no_cluster_runtime() -> None:
    task = make_file(base_runtime="vlllm", deployment_mode=None)

    [missing] = make_plan(task, OFFERS).missing

    assert missing.sentence.startswith(
        "'vlllm' is no engine; did you mean 'vllm'? It counts as a ClusterServingRuntime, but no"
    )
