"""Task files: the autotuner's own are accepted unchanged, bad ones are refused by path."""

import copy
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode, TaskFile
from services.cli.task_templates import task_template
from services.executor.engines.engine_table import IMAGES
from services.orchestrator.domain.installation.offers import Offer
from services.orchestrator.domain.plan.plan import Plan
from shared.problems import explain_validation_error
from shared.task_files.form import form_of
from shared.yaml_documents import json_of_yaml
from tests.support.paths import ROOT
from tests.support.worlds.orchestrator_records import OFFERS, make_offer, make_plan

EXAMPLES = ROOT / "schemas" / "examples"

# The autotuner's files by name: how many values their fields have, by hand and in their order, how
# many experiments follow within max_iterations, in which mode, and for which field alone a host
# with Docker and without a cluster cannot run it; None where it can.
AUTOTUNER = {
    "docker_task.json": ((1, 2), 2, DeploymentMode.DOCKER, None),
    "docker_task_advanced.json": ((1, 3, 2, 2), 12, DeploymentMode.DOCKER, None),
    "docker_task_minimal_slo.json": ((2, 2), 4, DeploymentMode.DOCKER, None),
    "docker_task_with_slo.json": ((2, 3), 6, DeploymentMode.DOCKER, None),
    "ome_with_presets_task.json": ((1,), 1, DeploymentMode.OME, "$.deployment_mode"),
    "parallel_config_test.json": ((2, 2, 1), 2, DeploymentMode.DOCKER, None),
    "pvc_task.json": ((1, 1), 1, DeploymentMode.OME, "$.deployment_mode"),
    "quant_custom_task.json": ((1, 1, 1, 1, 2, 1), 2, DeploymentMode.DOCKER, None),
    "quant_preset_task.json": ((1, 2, 2), 4, DeploymentMode.DOCKER, None),
    "simple_task.json": ((1, 1), 1, DeploymentMode.OME, "$.base_runtime"),
    "tuning_task.json": ((1, 3, 2, 3), 18, DeploymentMode.OME, "$.base_runtime"),
}
FP8_CACHE = {"kv-cache-dtype": "fp8_e5m2"}

# One file with every block that the autotuner's files use, written for this test.
EVERY_BLOCK: dict[str, Any] = {
    "task_name": "every-block",
    "description": "all blocks at once",
    "model": {"id_or_path": "an-8b-model", "namespace": "team"},
    "storage": {"type": "pvc", "pvc_name": "models", "pvc_subpath": "a/b", "mount_path": "/m"},
    "base_runtime": "sglang",
    "runtime_image_tag": "v1",
    "clusterbasemodel_config": {"preset": "a-model"},
    "clusterservingruntime_config": {"preset": "a-runtime"},
    "parameters": {
        "tp_size": {"type": "choice", "values": [1, 2]},
        "mem-fraction-static": [0.8, 0.9],
        "schedule-policy": ["lpm", "fcfs"],
    },
    "parallel_config": {"dp": [1, 2]},
    "quant_config": {"gemm_dtype": "fp8", "kvcache_dtype": ["auto", "fp8_e5m2"]},
    "slo": {
        "latency": {
            "p50": {"threshold": 2.0, "weight": 1.0, "hard_fail": False},
            "p99": {"threshold": 10.0, "weight": 3.0, "hard_fail": True, "fail_ratio": 0.5},
        },
        "ttft": {"threshold": 1.0},
        "tpot": {"threshold": 0.05},
        "steepness": 0.1,
    },
    "optimization": {
        "strategy": "grid_search",
        "objective": "maximize_throughput",
        "max_iterations": 20,
        "timeout_per_iteration": 900,
    },
    "benchmark": {
        "task": "text-to-text",
        "model_name": "a-model",
        "model_tokenizer": "org/a-model",
        "traffic_scenarios": ["D(100,100)", "N(480,240)/(300,150)"],
        "num_concurrency": [1, 4],
        "max_time_per_iteration": 10,
        "max_requests_per_iteration": 50,
        "additional_params": {"temperature": "0.0", "nested": {"free": [1, None]}},
    },
}


def planned(text: bytes | str) -> Plan:
    return make_plan(msgspec.json.decode(text, type=TaskFile), OFFERS)


@pytest.mark.parametrize("name", AUTOTUNER)
def test_autotuner_file_is_accepted_unchanged(name: str) -> None:
    text = autotuners(name)

    plan = planned(text)

    values, count, mode, _ = AUTOTUNER[name]
    assert (plan.total, len(plan.experiments)) == (math.prod(values), count)
    assert len({str(each.engine.parameters) for each in plan.experiments}) == count
    assert plan.mode is mode


@pytest.mark.parametrize("name", AUTOTUNER)
def test_the_autotuners_file_on_a_host_with_docker(name: str) -> None:
    content = msgspec.json.decode(autotuners(name), type=TaskFile)

    plan = make_plan(content, (make_offer(tools=("genai-bench", "builtin")),))

    field = AUTOTUNER[name][3]
    assert [missing.path for missing in plan.missing] == ([field] if field else [])
    assert {e.engine.image_tag for e in plan.experiments} == {content.runtime_image_tag}
    if field is None:
        assert plan.benchmark_tool is BenchmarkTool.GENAI_BENCH
        assert {e.request.node_ids for e in plan.experiments} == {("n1",)}


@pytest.mark.parametrize(
    ("name", "gpus", "last"),
    [
        ("docker_task.json", [1, 1], {"tp-size": 1, "mem-fraction-static": 0.8}),
        ("docker_task_minimal_slo.json", [1, 1, 2, 2], {"tp-size": 2, "mem-fraction-static": 0.85}),
        (
            "parallel_config_test.json",
            [2, 4],
            {"tp-size": 2, "dp-size": 2, "mem-fraction-static": 0.85},
        ),
        (
            "quant_custom_task.json",
            [1, 2],
            {
                "quantization": "fp8",
                **FP8_CACHE,
                "attention-backend": "flashinfer",
                "tp-size": 2,
                "mem-fraction-static": 0.85,
            },
        ),
        (
            "quant_preset_task.json",
            [1, 1, 2, 2],
            {**FP8_CACHE, "tp-size": 2, "mem-fraction-static": 0.9},
        ),
    ],
)
def test_the_autotuners_file_becomes_flags_and_gpus(
    name: str, gpus: list[int], last: dict[str, Any]
) -> None:
    content = msgspec.json.decode(autotuners(name), type=TaskFile)

    plan = make_plan(content, (make_offer(),))

    assert [each.request.gpus for each in plan.experiments] == gpus
    assert plan.experiments[-1].engine.parameters == last


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        ("ome_with_presets_task.json", "sglang-llama-small"),
        ("pvc_task.json", "any"),
        ("simple_task.json", "sglang-llama-small"),
        ("tuning_task.json", "llama-3-2-1b-instruct-rt"),
    ],
)
def test_autotuner_cluster_file_is_planned(name: str, runtime: str) -> None:
    offered = RuntimeOffer(
        runtime=Runtime.OME,
        engines=("sglang",),
        engine_rules={"sglang": IMAGES["sglang"].engine.rules},
        serving_runtimes={runtime: "sglang"},
    )
    cluster = Offer(executor_id="prod", runtimes=(offered,), benchmark_tools=("builtin",))

    plan = make_plan(msgspec.json.decode(autotuners(name), type=TaskFile), (cluster,))

    assert plan.missing == ()
    assert {each.engine.engine for each in plan.experiments} == {"sglang"}
    assert all(each.request.cluster is not None for each in plan.experiments)


def autotuners(name: str, release: str = "tasks") -> bytes:
    folder = os.environ.get("GPUSTEWARD_TEST_DATA")
    path = Path(folder or "") / release / name
    if folder is None or not path.is_file():
        pytest.skip("needs the autotuner's task files: set GPUSTEWARD_TEST_DATA to their folder")
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "count", "mode"),
    [
        ("bayesian_task.json", 0, DeploymentMode.DOCKER),
        ("docker_task_with_dataset.json", 1, DeploymentMode.DOCKER),
        ("local_task.json", 1, DeploymentMode.PROCESS),
        ("quant_multi_preset_task.json", 3, DeploymentMode.DOCKER),
    ],
)
def test_file_of_a_newer_release_is_accepted(name: str, count: int, mode: DeploymentMode) -> None:
    form = form_of(autotuners(name, "tasks-0.2.1"))

    assert not form.mistakes
    plan = planned(form.body)
    assert plan.mode is mode
    assert len(plan.experiments) >= count
    has_dataset = msgspec.json.decode(form.body, type=TaskFile).benchmark.dataset is not None
    assert has_dataset is ("dataset" in name)


def test_a_file_with_every_block_is_accepted() -> None:
    plan = planned(json.dumps(EVERY_BLOCK))

    assert (len(plan.experiments), plan.total, plan.cut) == (20, 32, 12)
    assert plan.mode is DeploymentMode.OME
    first, last = plan.experiments[0], plan.experiments[-1]
    assert first.parameters == {
        "quant_config.gemm_dtype": "fp8",
        "quant_config.kvcache_dtype": "auto",
        "parallel_config.dp": 1,
        "tp_size": 1,
        "mem-fraction-static": 0.8,
        "schedule-policy": "lpm",
    }
    assert (first.request.gpus, last.request.gpus) == (1, 1)
    assert max(e.request.gpus for e in plan.experiments) == 4


@pytest.mark.parametrize(
    ("name", "experiments", "mode"),
    [
        ("smollm2-cpu.json", 4, DeploymentMode.PROCESS),
        ("simulated-quick.json", 4, DeploymentMode.PROCESS),
        ("llama-docker.json", 4, DeploymentMode.DOCKER),
    ],
)
def test_our_examples_are_task_files(name: str, experiments: int, mode: DeploymentMode) -> None:
    plan = planned((EXAMPLES / name).read_bytes())

    assert (len(plan.experiments), plan.mode) == (experiments, mode)
    if mode is DeploymentMode.PROCESS:
        assert plan.missing == ()
    if mode is DeploymentMode.DOCKER:
        content = msgspec.json.decode((EXAMPLES / name).read_bytes(), type=TaskFile)
        assert make_plan(content, (make_offer(),)).missing == ()


def test_our_example_of_rows_is_a_grid_of_each_row() -> None:
    text = json_of_yaml((EXAMPLES / "vllm-configurations.yaml").read_bytes())
    plan = make_plan(msgspec.json.decode(text, type=TaskFile), (make_offer(),))

    assert plan.missing == ()
    assert [each.request.gpus for each in plan.experiments] == [1, 1, 2, 2, 4, 4]


def test_our_example_of_engines_takes_turns() -> None:
    text = json_of_yaml((EXAMPLES / "engines.yaml").read_bytes())
    plan = make_plan(msgspec.json.decode(form_of(text).body, type=TaskFile), (make_offer(),))

    assert plan.missing == ()
    engines = [(each.engine.engine, each.engine.image_tag) for each in plan.experiments]
    assert engines[:3] == [("vllm", "v0.17.0"), ("vllm", "v0.18.0"), ("sglang", None)]
    assert len(engines) == 12
    assert sorted({each.request.gpus for each in plan.experiments}) == [1, 2]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_first_task_is_planned_with_all_its_flags(engine: str) -> None:
    text = re.sub(
        r"^  # (?=[\w-]+: \[)", "  ", task_template(engine, None, None, None), flags=re.MULTILINE
    )
    task = msgspec.json.decode(json_of_yaml(text.encode()), type=TaskFile)

    plan = make_plan(task, (make_offer(),))

    assert plan.missing == ()
    assert plan.experiments_at_most > 1
    assert (EXAMPLES / f"{engine}.yaml").read_text() == task_template(engine, None, None, None)


@pytest.mark.parametrize(
    ("place", "value", "path", "says"),
    [
        (["optimization", "strategy"], "guess", "$.optimization.strategy", "grid_search"),
        (["optimization", "objective"], "best", "$.optimization.objective", "minimize_ttft"),
        (["optimization", "max_iterations"], 0, "$.optimization.max_iterations", ">= 1"),
        (["optimization", "max_iterations"], "3", "$.optimization.max_iterations", "`int"),
        (["optimization", "timeout"], 3, "$.optimization.timeout", "unknown field"),
        (["deployment_mode"], "k8s", "$.deployment_mode", "process"),
        (["base_runtime"], 3, "$.base_runtime", "`str`"),
        (["task_name"], "../../etc/passwd", "$.task_name", "expected 1 to 128 letters"),
        (["task_name"], "", "$.task_name", "expected 1 to 128 letters"),
        (["model"], None, "$.model", "`object`"),
        (["model", "id_or_path"], "", "$.model.id_or_path", "length >= 1"),
        (["modl"], {}, "$.modl", "unknown field"),
        (["parameters", "tp_size"], 1, "$.parameters.tp_size", "got `int`"),
        (["parameters", "tp_size"], [], "$.parameters.tp_size", "length >= 1"),
        (["parameters", "a b"], [1], "$.parameters", "as a key"),
        (["parallel_config", "tp"], [1, "2"], "$.parallel_config.tp[1]", "got `str`"),
        (["quant_config", "gemm"], "fp8", "$.quant_config.gemm", "unknown field"),
        (["slo", "ttft", "threshold"], 0, "$.slo.ttft.threshold", "> 0"),
        (["slo", "latency", "p42"], {}, "$.slo.latency.p42", "unknown field"),
        (["storage", "type"], "nfs", "$.storage.type", "pvc"),
        (["benchmark", "num_concurrency"], [0], "$.benchmark.num_concurrency[0]", ">= 1"),
        (["benchmark", "traffic_scenarios"], ["X"], "$.benchmark.traffic_scenarios[0]", "genai"),
        (["benchmark", "tool"], "wrk", "$.benchmark.tool", "genai-bench"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_by_path(
    place: list[str], value: object, path: str, says: str
) -> None:
    content = copy.deepcopy(EVERY_BLOCK)
    holder = content
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = value

    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(json.dumps(content), type=TaskFile)

    found, sentence = explain_validation_error(caught.value, TaskFile, json.dumps(content))
    assert found == path
    assert says in sentence
