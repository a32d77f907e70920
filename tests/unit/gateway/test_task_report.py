"""What a task's report says, and how its best configuration is written for others to run."""

import shlex
from typing import Any

import hypothesis as hyp
import pytest
import yaml
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.cluster.kubernetes import ContainerDevices, KubernetesSpec, VolumeClaim
from schemas.executor.attempts import EngineSpec, Failure, FailureKind, Runtime
from schemas.gateway.views import ExperimentDetail, MeasuredMetrics
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.results.reports import WaterfallStep, WaterfallView
from schemas.task.benchmark import (
    FailedLevel,
    LoadBoundary,
    LoadKind,
)
from schemas.task.dataset import DatasetFormat, DatasetUse
from schemas.task.objectives import Objective
from schemas.task.quality import QualityVerdict
from schemas.task.report import Deployments
from schemas.task.slo import ConstraintCheck, SloVerdict
from schemas.task.stop_words import STOPPED
from schemas.task.task_file import StopReason, TaskFile
from schemas.task.trust import RunInfo, RunRole, SetAside, TrustedConfiguration, TrustVerdict
from services.gateway.domain.task_report.deployments import deployments
from services.gateway.domain.task_report.importance import JOINT_EFFECT, importance
from services.gateway.domain.task_report.markdown import markdown
from services.gateway.domain.task_report.report import task_report
from shared.engines.llamacpp.allow_list import LLAMACPP
from shared.engines.sglang.allow_list import SGLANG
from shared.engines.table import LAUNCHES
from shared.engines.vllm.allow_list import VLLM as VLLM_FLAGS
from shared.ids import new_id
from tests.support.ready_forms import TUNED, Tuned
from tests.support.worlds.gateway_views import make_experiment, make_task
from tests.support.worlds.orchestrator_records import make_file

ALLOW_LISTS = {"vllm": VLLM_FLAGS, "sglang": SGLANG, "llamacpp": LLAMACPP}
# What a task may not set: where the model is, and where the engine answers.
OUR_FLAGS = {"host", "port", "model", "model-path", "hf-repo"}


def detail(ordinal: int, score: float | None = None, **changes: Any) -> ExperimentDetail:
    """Measured where it has a score."""
    state = ExperimentState.FAILED if score is None else ExperimentState.SUCCEEDED
    metrics = MeasuredMetrics() if score is not None else None
    given = {"state": state, "objective_score": score, "metrics": metrics, **changes}
    view = make_experiment(ordinal, **given)
    return ExperimentDetail(**{name: getattr(view, name) for name in view.__struct_fields__})


def grid(*scores: float) -> list[ExperimentDetail]:
    """Threads x parallel, the last one fastest."""
    points = [{"threads": t, "parallel": p} for t in (1, 2) for p in (1, 2)]
    return [
        detail(number, score, parameters=point)
        for number, (point, score) in enumerate(zip(points, scores, strict=True), start=1)
    ]


def test_report_names_best_and_its_changes() -> None:
    task = make_task(objective=Objective.MAXIMIZE_THROUGHPUT, state=TaskState.COMPLETED)

    report = task_report(task, grid(100.0, 110.0, 190.0, 200.0), None)

    assert report.best is not None
    assert report.best.ordinal == 4
    assert report.baseline is not None
    assert report.baseline.worse_percent == pytest.approx(50.0)
    assert [(each.name, each.baseline, each.best) for each in report.changes] == [
        ("threads", 1, 2),
        ("parallel", 1, 2),
    ]
    assert [each.ordinal for each in report.others] == [3, 2, 1]


def test_greater_of_two_latencies_is_worse() -> None:
    report = task_report(
        make_task(objective=Objective.MINIMIZE_LATENCY), grid(3.0, 2.5, 2.0, 2.25), None
    )

    assert report.best is not None
    assert report.best.ordinal == 3
    assert [each.worse_percent for each in report.others] == [12.5, 25.0, 50.0]


@pytest.mark.parametrize(
    ("state", "so_far"), [(TaskState.RUNNING, True), (TaskState.COMPLETED, False)]
)
def test_running_task_has_best_so_far(state: TaskState, so_far: bool) -> None:
    report = task_report(make_task(state=state), grid(1.0, 2.0, 3.0, 4.0), None)

    assert report.verdict.endswith("so far") is so_far


@pytest.mark.parametrize(("engine", "simulated"), [("vllm", False), ("simulated", True)])
def test_simulated_measurements_are_marked(engine: str, simulated: bool) -> None:
    measured = detail(
        1, 1.0, engine=EngineSpec(engine=engine, model="a-model", runtime=Runtime.PROCESS)
    )

    assert task_report(make_task(), [measured], None).simulated is simulated


def test_best_score_leads_before_verdict() -> None:
    report = task_report(make_task(), grid(2.0, 1.0, 3.0, 4.0), None)

    assert report.best is not None
    assert report.best.ordinal == 2


def test_verdict_without_winner_names_no_best() -> None:
    report = task_report(make_task(trust=TrustVerdict()), grid(2.0, 1.0, 3.0, 4.0), None)

    assert report.best is None
    assert [each.ordinal for each in report.others] == [2, 1, 3, 4]
    assert report.verdict.startswith("none can be trusted to be best")


def test_importance_is_share_of_variance() -> None:
    """Of scores that are threads * 90 + parallel * 10, by hand: 8100 and 100 of 8200."""
    rows = [({"threads": t, "parallel": p}, t * 90.0 + p * 10) for t in (1, 2) for p in (1, 2)]

    found = importance(["parallel", "threads"], rows)

    assert [each.name for each in found] == ["threads", "parallel"]
    assert [each.share for each in found] == pytest.approx([8100 / 8200, 100 / 8200])
    assert [(v.value, v.experiments, v.mean_score) for v in found[0].values] == [
        ("1", 2, 105.0),
        ("2", 2, 195.0),
    ]


def test_joint_effect_is_listed_separately() -> None:
    """Scores of (-1)^(a+b): neither alone explains anything."""
    rows = [({"a": a, "b": b}, 2.0 + (-1.0) ** (a + b)) for a in (1, 2) for b in (1, 2)]

    found = importance(["a", "b"], rows)

    assert [each.name for each in found] == ["a", "b", JOINT_EFFECT]
    assert [each.share for each in found] == pytest.approx([0.0, 0.0, 1.0])


def test_confounded_parameters_share_importance() -> None:
    rows = [({"a": a, "b": 2 * a}, score) for a in (1, 2) for score in (a * 10.0, a * 10.0)]

    found = importance(["a", "b"], rows)

    assert [each.share for each in found] == pytest.approx([0.5, 0.5])


@hyp.given(
    st.lists(
        st.tuples(
            st.fixed_dictionaries(
                {"a": st.integers(1, 3), "b": st.sampled_from("xy"), "c": st.floats(0, 1)}
            ),
            st.floats(0.01, 1000),
        ),
        min_size=3,
        max_size=30,
    )
)
def test_importances_sum_to_whole_variance(rows: list[tuple[Any, float]]) -> None:
    shares = [each.share for each in importance(["a", "b", "c"], rows) if each.share is not None]

    assert all(0.0 <= share <= 1.0 for share in shares)
    if any(shares):
        assert sum(shares) == pytest.approx(1.0)


def test_sampled_numbers_are_compared_by_range() -> None:
    rows = [({"x": number / 7}, float(number)) for number in range(20)]

    found = importance(["x"], rows)[0]

    assert len(found.values) == 4
    assert found.share is not None
    assert found.share > 0.9


def test_unique_values_explain_nothing() -> None:
    rows = [({"name": f"n{number}"}, float(number)) for number in range(6)]

    (found,) = importance(["name"], rows)

    assert found.share is None


def test_unmeasured_configuration_has_reason() -> None:
    out_of_memory = Failure(kind=FailureKind.GPU_OUT_OF_MEMORY, message="no room for the KV cache")
    task = make_task(cut=8, state=TaskState.COMPLETED)
    experiments = [
        detail(1, 2.0),
        detail(2, failure=out_of_memory),
        detail(3, state=ExperimentState.CANCELLED, reason="enough"),
        detail(4, failure=out_of_memory),
    ]

    report = task_report(task, experiments, None)

    assert [(each.count, each.ordinals, each.reason) for each in report.not_tried] == [
        (8, (), "left out by max_iterations"),
        (2, (2, 4), "failed: gpu_out_of_memory: no room for the KV cache"),
        (1, (3,), "cancelled: enough"),
    ]


def test_failed_at_shared_load_is_not_compared() -> None:
    level = FailedLevel(
        scenario="D(1,1)", num_concurrency=8, num_requests=9, num_completed_requests=0
    )
    metrics = MeasuredMetrics(failed_levels=(level,))

    report = task_report(make_task(), [detail(1, 1.0, metrics=metrics), detail(2, 3.0)], None)

    assert report.best is not None
    assert report.best.ordinal == 2
    assert report.others[0].worse_percent is None
    assert "D(1,1) at concurrency 8 served 0 of 9" in report.others[0].because


def test_differing_answers_exclude_from_best() -> None:
    verdicts = [
        QualityVerdict(
            baseline=1, compared=4, identical=n, agreement=n / 4, min_agreement=0.5, excess=excess
        )
        for n, excess in ((4, 0.0), (0, 1.0), (3, 0.0))
    ]
    experiments = [
        detail(number, 4.0 - number, slo=SloVerdict(quality=verdict))
        for number, verdict in enumerate(verdicts, start=1)
    ]
    experiments[1] = replace(experiments[1], objective_score=0.1)

    report = task_report(make_task(), experiments, None)

    assert report.best is not None
    assert report.best.ordinal == 3
    assert "agreement 0 % with experiment 1" in report.others[-1].because
    assert "Its answers: agreement 75 % with experiment 1 (at least 50 %)" in markdown(report)


@pytest.mark.parametrize(
    ("foreseen", "said"), [(0.25, "The prior predicted 0.25 s, off by 50 %."), (None, "")]
)
def test_prediction_stands_beside_best(foreseen: float | None, said: str) -> None:
    report = task_report(make_task(), [detail(1, 0.5, predicted_score=foreseen)], None)

    lines = [line for line in markdown(report).splitlines() if "prior" in line]
    assert "".join(lines) == said


def test_baseline_missing_constraints_names_them() -> None:
    missed = ConstraintCheck(constraint="ttft:p99<1s", load="D(1,1)", actual=2.0, excess=1.0)
    first = detail(1, 1.0, parameters={"x": 1}, slo=SloVerdict(constraints=(missed,)))

    report = task_report(make_task(), [first, detail(2, 3.0, parameters={"x": 2})], None)

    assert report.best is not None
    assert report.best.ordinal == 2
    assert "has 1 s: misses ttft:p99<1s by 100 % at D(1,1)." in markdown(report)


@pytest.mark.parametrize(
    ("file", "measure"),
    [
        pytest.param(None, "mean_e2e_latency", id="file unknown"),
        pytest.param(make_file(), "mean_e2e_latency", id="without"),
        pytest.param(
            make_file(slo={"ttft": {"threshold": 1.0}}), "with the penalty of slo", id="with"
        ),
    ],
)
def test_a_score_that_is_penalized_is_told_as_one(file: TaskFile | None, measure: str) -> None:
    assert task_report(make_task(task=file), [], None).measure.endswith(measure)


def test_load_search_reports_bracket() -> None:
    def searched(ordinal: int, estimate: float, high: float | None) -> ExperimentDetail:
        found = LoadBoundary(
            load=LoadKind.POISSON, low=40, high=high, estimate=estimate, cliff=True, levels=7
        )
        point = {"slots": ordinal}
        return detail(ordinal, estimate, parameters=point, metrics=MeasuredMetrics(boundary=found))

    experiments = [searched(1, 42.5, 45), searched(2, 64, None), detail(3, parameters={})]
    task = make_task(objective=Objective.MAXIMIZE_LOAD)

    report = task_report(task, experiments, None)

    assert report.best is not None
    assert report.best.boundary is not None
    assert report.best.boundary.high is None
    assert [each.boundary and each.boundary.high for each in report.others] == [45]
    text = markdown(report)
    assert "64 or more requests per second, found in 7 levels" in text
    assert "it misses the constraints by far just above its max load" in text
    assert "| # | parameters | greatest load | worse by |" in text
    assert "| 1 | slots=1 | 42.5 (40 to 45) |" in text


def test_the_cost_is_that_of_all_that_was_held() -> None:
    steps = (
        WaterfallStep(step="waiting", seconds=50, gpu_seconds=0, cost=0.0),
        WaterfallStep(step="loading", seconds=10, gpu_seconds=20, cost=0.5),
        WaterfallStep(step="measuring", seconds=30, gpu_seconds=60, cost=1.5),
    )
    waterfall = WaterfallView(subject_id=new_id(), attempts=2, steps=steps, currency="EUR")

    report = task_report(make_task(), grid(1.0, 2.0, 3.0, 4.0), waterfall)

    assert report.cost is not None
    assert (report.cost.gpu_seconds, report.cost.measuring_gpu_seconds) == (80, 60)
    assert "80 GPU-seconds, 2.00 EUR in 2 attempts; 60 of them measured load." in markdown(report)


VLLM = EngineSpec(
    runtime=Runtime.DOCKER,
    engine="vllm",
    model="/models/qwen",
    parameters={
        "tensor-parallel-size": 2,
        "enable_prefix_caching": False,
        "enforce-eager": True,
        "compilation-config": {"level": 3},
    },
    image_tag="v0.17.1",
)


def test_command_line_has_one_parameter_per_line() -> None:
    text = deployments("tuning", VLLM, GpuRequest(gpus=2)).command_line

    assert shlex.split(text.replace("\\\n", "")) == [
        *("vllm", "serve", "/models/qwen", "--tensor-parallel-size", "2"),
        *("--no-enable-prefix-caching", "--enforce-eager"),
        *("--compilation-config", '{"level":3}', "--host", "0.0.0.0", "--port", "8000"),  # noqa: S104
    ]
    assert len(text.splitlines()) == 6


@pytest.mark.parametrize("tuned", TUNED, ids=lambda each: each.name)
def test_every_form_flag_is_documented(tuned: Tuned) -> None:
    made, known = tuned.forms(), ALLOW_LISTS[tuned.engine.engine]
    compose = yaml.safe_load(made.compose)["services"][tuned.name]
    _, deployment = yaml.safe_load_all(made.deployment)
    runtime, _ = yaml.safe_load_all(made.inference_service)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    typed = shlex.split(made.command_line.replace("\\\n", ""))

    flags = [each[2:].partition("=")[0] for each in typed if each.startswith("--")]

    assert [each for each in flags if known.form_of(each) is None and each not in OUR_FLAGS] == []
    assert tuned.engine.model in typed
    written = [each.replace("$", "$$") for each in typed]
    for given in (
        compose["command"],
        container["args"],
        runtime["spec"]["engineConfig"]["runner"]["args"],
    ):
        assert given == written[-len(given) :]


def test_llama_cpp_switch_without_negative_is_omitted() -> None:
    found = LAUNCHES["llamacpp"].arguments({"mlock": False, "no-host": False, "mmap": False})

    assert found == [[], [], ["--no-mmap"]]


@pytest.mark.parametrize(
    ("model", "flag", "is_noted"),
    [
        pytest.param("ggml-org/gpt-oss-20b-GGUF", "--hf-repo", False, id="of the hub"),
        pytest.param("/models/a.gguf", "--model", False, id="a file"),
        pytest.param("smollm2-135m", "--model", True, id="a name of ours"),
    ],
)
def test_llama_cpp_gets_no_hub_for_packaged_model(model: str, flag: str, is_noted: bool) -> None:
    engine = EngineSpec(runtime=Runtime.PROCESS, engine="llamacpp", model=model)

    made = deployments("x", engine, GpuRequest())

    assert f"llama-server --metrics {flag} {model}" in made.command_line
    assert any(model in each for each in made.notes) is is_noted


def test_compose_and_cluster_request_measured_gpus() -> None:
    made = deployments("My tuning!", VLLM, GpuRequest(gpus=2))

    compose = yaml.safe_load(made.compose)["services"]["my-tuning"]
    assert made.deployment.startswith("apiVersion: v1\nkind: Service\nmetadata:\n")
    service, deployment = yaml.safe_load_all(made.deployment)
    pod = deployment["spec"]["template"]["spec"]
    assert compose["image"] == "vllm/vllm-openai:v0.17.1"
    assert compose["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2
    assert compose["volumes"] == [
        {"type": "bind", "source": "/models/qwen", "target": "/models/qwen", "read_only": True}
    ]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert pod["containers"][0]["args"] == compose["command"]
    assert pod["containers"][0]["command"] == compose["entrypoint"] == ["vllm", "serve"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert list(service) == ["apiVersion", "kind", "metadata", "spec"], "as people write them"


def test_inference_service_has_claim_of_model() -> None:
    claim = VolumeClaim(name="models", mount_path="/mnt/models", subpath="qwen")
    engine = EngineSpec(
        runtime=Runtime.OME,
        engine="sglang",
        model="/mnt/models",
        parameters={"tp-size": 1},
        kubernetes=KubernetesSpec(claim=claim),
    )

    made = deployments("ome", engine, GpuRequest())

    runtime, service = yaml.safe_load_all(made.inference_service)
    assert (runtime["kind"], service["kind"]) == ("ServingRuntime", "InferenceService")
    assert service["spec"]["runtime"]["name"] == runtime["metadata"]["name"]
    engine_config = runtime["spec"]["engineConfig"]
    assert {
        "name": "model",
        "persistentVolumeClaim": {"claimName": "models", "readOnly": True},
    } in (engine_config["volumes"])
    assert engine_config["runner"]["args"][:3] == ["python3", "-m", "sglang.launch_server"]
    assert "model" not in service["spec"]


@pytest.mark.parametrize(
    ("names", "resource", "limits"),
    [
        pytest.param(
            KubernetesSpec(
                devices=ContainerDevices(limits={"vendor.com/npu": 2, "vendor.com/m": 16})
            ),
            "vendor.com/npu",
            {"vendor.com/npu": "2", "vendor.com/m": "16"},
            id="as it was defined",
        ),
        pytest.param(
            None, "tencent.com/vcuda-core", {"tencent.com/vcuda-core": "200"}, id="units of GPUs"
        ),
        pytest.param(None, None, {"nvidia.com/gpu": "2"}, id="whole GPUs"),
    ],
)
def test_deployment_requests_measured_devices(
    names: KubernetesSpec | None, resource: str | None, limits: dict[str, str]
) -> None:
    engine = EngineSpec(
        runtime=Runtime.KUBERNETES, engine="sglang", model="a-model", kubernetes=names
    )
    request = GpuRequest(gpus=2, cluster=ClusterRequest(resource=resource))

    made = deployments("a-task", engine, request)

    _, deployment = yaml.safe_load_all(made.deployment)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == limits


def test_inference_service_names_ome_model() -> None:
    engine = EngineSpec(
        runtime=Runtime.OME,
        engine="sglang",
        model="/raid/qwen",
        kubernetes=KubernetesSpec(base_model="qwen"),
    )

    made = deployments("ome", engine, GpuRequest())

    _, service = yaml.safe_load_all(made.inference_service)
    assert service["spec"]["model"] == {"name": "qwen", "apiGroup": "ome.io"}


def test_parameter_without_value_is_left_to_engine() -> None:
    launch = LAUNCHES["vllm"]

    found = launch.arguments({"max-num-seqs": 8, "seed": None})

    assert found == [["--max-num-seqs", "8"]]


def test_nothing_is_invented_for_operator_engine() -> None:
    made = deployments(
        "x", EngineSpec(runtime=Runtime.DOCKER, engine="mine", model="m"), GpuRequest()
    )

    assert (made.command_line, made.compose, made.deployment) == ("", "", "")
    assert "mine" in made.notes[0]


TRUST = TrustVerdict(
    winner=2,
    noise_floor_percent=2.5,
    ties=(3,),
    repeated=(TrustedConfiguration(ordinal=2, runs=3, mean_score=1.25, spread_percent=0.5),),
    set_aside=(SetAside(ordinal=4, reason="GPU 0: XID 79"),),
    replays=3,
    worst_score=1.5,
    improvement_percent=0.75,
)


def test_confirmed_winner_beats_best_score() -> None:
    experiments = [
        *grid(2.0, 1.25, 1.0, 0.5),
        detail(5, 1.24, parameters={"threads": 1, "parallel": 2}, run=again(2, RunRole.REPEAT)),
        detail(6, 0.1, parameters={"threads": 1, "parallel": 2}, run=again(2, RunRole.REPLAY)),
    ]
    task = make_task(
        objective=Objective.MINIMIZE_LATENCY,
        state=TaskState.COMPLETED,
        best_experiment_id=experiments[1].experiment_id,
        trust=TRUST,
    )

    report = task_report(task, experiments, None)
    text = markdown(report)

    assert report.best is not None
    assert (report.best.ordinal, [each.ordinal for each in report.others]) == (2, [4, 3, 1])
    assert "Experiment 2 cannot be told from 3 (noise floor 2.5 %)" in text
    assert "it changes the fewest flags" in text
    assert "- Noise floor 2.5 %: 19 of 20 pairs" in text
    assert "- Another configuration that was measured may be better by 0.75 % at most." in text
    assert "3 times more with other requests, its worst score is 1.5." in text
    assert "- Experiment 4 is set aside: GPU 0: XID 79." in text
    assert "| 2 | 3 | 1.25 | 0.5 % | 0 % |" in text


@pytest.mark.parametrize(
    ("trust", "says"),
    [
        (TrustVerdict(winner=2), "nothing was measured twice"),
        (TrustVerdict(set_aside=(SetAside(ordinal=1, reason="hot"),)), "none can be trusted"),
        (TrustVerdict(winner=2, noise_floor_percent=1.0), "best, by more than chance (1 %)"),
    ],
)
def test_the_verdict_says_what_it_rests_on(trust: TrustVerdict, says: str) -> None:
    experiments = grid(2.0, 1.0, 3.0, 4.0)
    best = experiments[1].experiment_id

    report = task_report(make_task(trust=trust, best_experiment_id=best), experiments, None)

    assert says in report.verdict


def again(ordinal: int, role: RunRole) -> RunInfo:
    return RunInfo(role=role, repeats=ordinal)


def test_latency_throughput_trade_offs_are_named() -> None:
    measured = [(1.0, 10.0), (2.0, 30.0), (3.0, 30.0), (1.5, 9.0), (4.0, 40.0), (5.0, None)]
    experiments = [
        detail(
            number,
            latency,
            metrics=MeasuredMetrics(
                mean_e2e_latency=latency, max_total_throughput_per_gpu=throughput
            ),
        )
        for number, (latency, throughput) in enumerate(measured, start=1)
    ]

    report = task_report(make_task(), experiments, None)

    assert [each.ordinal for each in report.pareto] == [1, 2, 5]
    assert "| 2 | 2 | 30 |" in markdown(report)
    assert task_report(make_task(), [], None).pareto == ()


def test_several_objectives_give_pareto_front() -> None:
    goals = {"objectives": ["minimize_latency", "minimize_cost"]}
    measured = [(3.0, 1.0), (1.0, 4.0), (2.0, 4.0), (2.0, 2.0), (4.0, None)]
    experiments = [
        detail(
            number,
            latency,
            parameters={"slots": number},
            metrics=MeasuredMetrics(mean_e2e_latency=latency, cost_per_million_tokens=cost),
        )
        for number, (latency, cost) in enumerate(measured, start=1)
    ]
    missed = SloVerdict(constraints=(ConstraintCheck(constraint="ttft:p99<1s", excess=0.5),))
    experiments.append(detail(6, 0.1, metrics=experiments[1].metrics, slo=missed))

    report = task_report(make_task(task=make_file(optimization=goals)), experiments, None)

    assert [each.ordinal for each in report.front] == [2, 4, 1]
    assert report.front[1].measures == {"mean_e2e_latency": 2.0, "cost_per_million_tokens": 2.0}
    assert "| 4 | slots=4 | 2 | 2 |" in markdown(report)
    assert task_report(make_task(task=make_file()), experiments, None).front == ()


@pytest.mark.parametrize("reason", StopReason)
def test_report_says_why_search_ended(reason: StopReason) -> None:
    report = task_report(make_task(stop_reason=reason), [], None)

    assert f"It stopped: {STOPPED[reason]}." in markdown(report)


def test_report_names_each_dataset_that_prompts_were_of() -> None:
    def measured(ordinal: int, sha256: str) -> ExperimentDetail:
        use = DatasetUse(sha256=sha256, format=DatasetFormat.CSV, rows=9, used=5)
        return replace(detail(ordinal, 1.0), dataset=use)

    same = task_report(make_task(), [measured(1, "ab"), measured(2, "ab")], None)
    changed = task_report(make_task(), [measured(1, "ab"), measured(2, "cd")], None)

    assert markdown(same).count("Dataset: 5 of 9 rows of csv, SHA-256 ab;") == 1
    assert "The dataset changed" not in markdown(same)
    assert "SHA-256 cd;" in markdown(changed)
    assert "The dataset changed while the task ran" in markdown(changed)


def test_hostile_value_stays_one_markdown_cell() -> None:
    hostile = "a|b\n<script>```"
    task = make_task(state=TaskState.COMPLETED)

    text = markdown(task_report(task, [detail(1, 1.0, parameters={"x": hostile})], None))

    assert "| x | a\\|b &lt;script>``` |" in text


@pytest.mark.parametrize(
    ("text", "fence"),
    [("run --x", "```"), ("run `a` ``b``", "```"), ("run ```", "````"), ("`````\n```", "``````")],
)
def test_deployment_text_never_ends_its_fence(text: str, fence: str) -> None:
    report = task_report(make_task(), [], None)

    lines = markdown(replace(report, deployments=Deployments(command_line=text))).splitlines()

    start = lines.index("### Command line")
    assert lines[start + 2] == f"{fence}sh"
    assert fence in lines[start + 3 :]


def test_decisive_parameters_are_named_if_any() -> None:
    task = make_task(state=TaskState.COMPLETED)
    title = "## What made the difference"

    assert title not in markdown(task_report(task, [detail(1, 1.0)], None))
    assert title in markdown(task_report(task, grid(1.0, 2.0, 3.0, 4.0), None))


def test_a_task_without_measurements_has_a_report() -> None:
    text = markdown(task_report(make_task(task_name="none"), [], None))

    assert text.startswith("# none\n\nNothing was measured")


@pytest.mark.parametrize("score", [0.0, 1e300, -1.0])
def test_scores_of_any_size_have_a_report(score: float) -> None:
    markdown(task_report(make_task(), grid(score, score, score * 2, score * 3), None))
