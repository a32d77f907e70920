"""The result tables: rank, units, unknown values and the mark of simulation."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.executor.attempts import AttemptPhase, Failure, FailureKind
from schemas.gpus.checks import Finding, Verdict
from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ExperimentView
from schemas.results.measurements import GpuMemoryTrend
from schemas.results.reports import FailureLine, FailuresView
from schemas.task.benchmark import FailedLevel, LoadBoundary, LoadKind
from schemas.task.objectives import Objective
from schemas.task.task_file import StopReason
from schemas.task.trust import RunInfo, RunRole, SetAside, TrustVerdict
from services.cli.commands.report import failures_table, print_csv
from services.cli.display.output import plain_text
from services.cli.display.tables import (
    attempts_text,
    experiment_table,
    memory_text,
    why_waiting,
)
from services.cli.display.task_progress import experiments_text
from services.cli.display.task_results import (
    boundary_lines,
    ending_lines,
    failure_lines,
    gpu_result_table,
    level_failure_lines,
    origin_lines,
    print_results,
    rank_experiments,
    result_table,
    trust_warning_lines,
    varying_parameters,
)
from shared.clock import utcnow
from tests.support.worlds.gateway_views import (
    make_attempt,
    make_experiment,
    make_metrics,
    make_monitoring,
    make_task,
)


@pytest.mark.parametrize(
    ("objective", "want"),
    [
        pytest.param(Objective.MINIMIZE_LATENCY, [3, 1, 2, 4], id="latency: the smallest first"),
        pytest.param(Objective.MAXIMIZE_THROUGHPUT, [2, 1, 3, 4], id="throughput: the largest"),
    ],
)
def test_experiments_rank_by_objective(objective: Objective, want: list[int]) -> None:
    scores = [(1, 2.0), (2, 9.0), (3, 1.0), (4, None)]
    experiments = [make_experiment(n, objective_score=score) for n, score in scores]

    assert [each.ordinal for each in rank_experiments(experiments, objective)] == want


def test_a_repeated_run_has_no_rank_of_its_own() -> None:
    first = make_experiment(1, objective_score=2.0)
    repeat = replace(
        make_experiment(2, objective_score=1.0), run=RunInfo(role=RunRole.REPEAT, repeats=1)
    )

    table = result_table([first, repeat], Objective.MINIMIZE_LATENCY)

    assert [row[0] for row in table.rows] == ["1", "-"]


@pytest.mark.parametrize(
    ("total", "at_most", "says"),
    [(4, 4, "4 experiments"), (1, 8, "at most 8 experiments"), (9, 8, "9 experiments")],
)
def test_search_has_its_maximum_of_experiments(total: int, at_most: int, says: str) -> None:
    task = make_task(experiments_total=total, experiments_at_most=at_most)

    assert experiments_text(task) == says


def test_task_end_shows_reason_and_trust() -> None:
    trust = TrustVerdict(
        winner=3,
        noise_floor_percent=1.5,
        set_aside=(
            SetAside(ordinal=2, reason="GPU 0: XID 79"),
            SetAside(ordinal=4, reason="throttled"),
            SetAside(ordinal=5, reason="throttled"),
        ),
    )
    task = make_task(stop_reason=StopReason.MAX_GPU_HOURS, trust=trust)

    lines = list(ending_lines(task))

    assert lines[0] == "stopped: the GPU-hours are used up (max_gpu_hours)"
    assert lines[1] == "experiment 3 is the best, by more than chance (1.5 %)"
    assert lines[2].startswith("Noise floor 1.5 %")
    assert lines[3] == "Experiment 2 is set aside: GPU 0: XID 79."
    assert lines[4] == "Experiments 4, 5 are set aside: throttled."
    assert list(ending_lines(make_task())) == []


def test_failed_experiment_has_no_rank_or_numbers() -> None:
    failed = make_experiment(2, state=ExperimentState.FAILED)

    table = result_table([failed], Objective.MINIMIZE_LATENCY)

    assert list(table.rows[0])[:3] == ["-", "2", "failed"]
    assert set(list(table.rows[0])[4:-2]) == {"-"}


HEAVY = FailedLevel(
    scenario="D(100,100)", num_concurrency=8, num_requests=17, num_completed_requests=1
)


def test_failure_at_served_load_has_no_rank() -> None:
    broken = make_experiment(
        1,
        objective_score=0.5,
        metrics=make_metrics(total_levels=2, failed_levels=(HEAVY,), max_error_rate=0.01),
    )
    steady = make_experiment(
        2, objective_score=9.0, metrics=make_metrics(total_levels=2, max_error_rate=0.01)
    )

    table = result_table([broken, steady], Objective.MINIMIZE_LATENCY)

    rows = [dict(zip(table.headings, row, strict=True)) for row in table.rows]
    assert [(row["rank"], row["#"], row["levels"]) for row in rows] == [
        ("1", "2", "2/2"),
        ("-", "1", "1/2"),
    ]
    (line,) = level_failure_lines([broken, steady], Objective.MINIMIZE_LATENCY)
    assert line == (
        "experiment 1 has no rank, as another one served what it did not: D(100,100) at "
        "concurrency 8 served 1 of 17 (at most 1 % of the requests may fail: max_error_rate)"
    )


def test_load_served_by_none_is_reported() -> None:
    metrics = make_metrics(total_levels=2, failed_levels=(HEAVY,), max_error_rate=0.01)
    experiments = [make_experiment(n, objective_score=1.0 * n, metrics=metrics) for n in (1, 2)]

    table = result_table(experiments, Objective.MINIMIZE_LATENCY)
    lines = level_failure_lines(experiments, Objective.MINIMIZE_LATENCY)

    assert [row[0] for row in table.rows] == ["1", "2"]
    assert lines[0] == (
        "experiment 1 did not serve: D(100,100) at concurrency 8 served 1 of 17 "
        "(at most 1 % of the requests may fail: max_error_rate)"
    )


def test_failed_levels_are_noted_in_lists() -> None:
    metrics = make_metrics(total_levels=2, failed_levels=(HEAVY,), max_error_rate=0.01)

    table = experiment_table([make_experiment(metrics=metrics)])

    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert row["remark"] == "D(100,100) at concurrency 8 served 1 of 17"


def test_throughput_per_gpu_stands_beside_throughput() -> None:
    metrics = make_metrics(mean_output_throughput_per_gpu=40.0, max_total_throughput_per_gpu=80.0)

    table = result_table([make_experiment(objective_score=1.0, metrics=metrics)], None)

    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert (row["output tok/s"], row["per GPU"]) == ("80.0", "40.0")
    assert (row["max total tok/s"], row["max per GPU"]) == ("160.0", "80.0")


def test_metrics_are_shown_in_heading_units() -> None:
    experiment = make_experiment(objective_score=1.25, metrics=make_metrics())

    table = result_table([experiment], Objective.MINIMIZE_LATENCY)
    row = dict(zip(table.headings, table.rows[0], strict=True))

    assert row["ttft ms"] == "50.0"
    assert row["tpot ms"] == "12.0"
    assert row["e2e s"] == "1.250"
    assert row["output tok/s"] == "80.0"
    assert row["requests"] == "10/10"


def test_only_parameters_that_differ_are_shown() -> None:
    experiments = [make_experiment(1), make_experiment(2)]

    assert varying_parameters(experiments) == ["threads"]
    assert varying_parameters(experiments[:1]) == ["threads", "parallel"]


def test_gpu_rows_show_spread_and_coverage() -> None:
    table = gpu_result_table([make_experiment(gpu_monitoring=make_monitoring())])

    assert table is not None
    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert row["util %"] == "10/55/90"
    assert row["temp C"] == "-/-/-"
    assert row["coverage %"] == "98"
    assert row["samples"] == "12"
    assert row["source"] == "simulated"


def test_measured_gpus_are_not_called_simulated() -> None:
    table = gpu_result_table([make_experiment(gpu_monitoring=make_monitoring(simulated=False))])

    assert table is not None
    assert "simulated" not in plain_text(table)


def test_untrusted_numbers_have_a_reason() -> None:
    seen = make_monitoring()
    judged = [
        make_experiment(1, gpu_monitoring=replace(seen, trusted=True)),
        make_experiment(2, gpu_monitoring=seen),
        make_experiment(
            3, gpu_monitoring=replace(seen, trusted=False, untrusted_because="no sample in 2 s")
        ),
        make_experiment(4, gpu_monitoring=None),
        make_experiment(
            5,
            gpu_monitoring=replace(
                seen, gpu_stats={}, trusted=False, untrusted_because="no agent reported"
            ),
        ),
    ]

    assert trust_warning_lines(judged) == [
        "experiment 3: do not trust its GPU numbers: no sample in 2 s",
        "experiment 5: no GPU numbers: no agent reported",
    ]


def test_missing_gpu_numbers_have_a_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unknown = replace(
        make_monitoring(), gpu_stats={}, trusted=False, untrusted_because="no agent reported"
    )

    print_results([make_experiment(gpu_monitoring=unknown)], None)

    printed = capsys.readouterr().out
    assert "GPUs while measured" not in printed
    assert "experiment 1: no GPU numbers: no agent reported" in printed


def test_preflight_findings_are_shown_with_action() -> None:
    unknown = Finding(
        verdict=Verdict.CASE_BY_CASE,
        rule="runtime_unknown",
        message="image a does not tell its CUDA",
        action="fetch it",
        subject="cuda",
    )

    assert origin_lines(make_experiment()) == []
    foreseen = make_experiment(predicted_score=0.25, objective_score=0.5)
    assert origin_lines(foreseen) == ["its prior predicted 0.25, measured: 0.5000, off by 50 %"]
    assert origin_lines(make_experiment(preflight=(unknown,))) == [
        "preflight, cuda: image a does not tell its CUDA; fetch it"
    ]


def test_interrupted_attempts_are_counted() -> None:
    experiment = make_experiment(
        attempts=(make_attempt(), make_attempt(attempt_number=2)), interrupted_attempts=1
    )

    assert attempts_text(experiment) == "2 (1 interrupted)"


def test_a_failure_is_told_with_its_kind() -> None:
    failure = Failure(kind=FailureKind.ENGINE_EXITED, message="exit 1")

    assert why_waiting(make_experiment(failure=failure)) == "engine_exited: exit 1"


def make_failed(ordinal: int, hint: str = "use more GPUs") -> ExperimentView:
    failure = Failure(
        kind=FailureKind.GPU_OUT_OF_MEMORY,
        message=f"engine {ordinal} ended",
        log_tail=("first", "second", "third", f"last of {ordinal}"),
        hint=hint,
        phase=AttemptPhase.WARMING_UP,
    )
    return make_experiment(
        ordinal=ordinal, state=ExperimentState.FAILED, failure=failure, executor_id="gpu-1"
    )


def test_failure_shows_phase_node_log_and_hint() -> None:
    assert failure_lines([make_failed(1)], log_lines=2) == [
        "experiment 1 failed while warming up on gpu-1: gpu_out_of_memory: engine 1 ended",
        "    third",
        "    last of 1",
        "  what to do: use more GPUs",
    ]


def make_trend(**overrides: Any) -> GpuMemoryTrend:
    fields: dict[str, Any] = {
        "node_id": "gpu-1",
        "index": 0,
        "name": "A100",
        "simulated": False,
        "start_mb": 20_000,
        "peak_mb": 79_000,
        "last_mb": 0,
        "total_mb": 80_000,
        "is_growing": True,
    }
    return GpuMemoryTrend(**{**fields, **overrides})


@pytest.mark.parametrize(
    ("trend", "told"),
    [
        (make_trend(), "gpu-1/0 growing: 20000, at most 79000, at last 0 of 80000 MB"),
        (
            make_trend(is_growing=False, total_mb=None, simulated=True),
            "gpu-1/0 flat: 20000, at most 79000, at last 0 of - MB, simulated",
        ),
    ],
)
def test_memory_before_a_failure_is_one_line(trend: GpuMemoryTrend, told: str) -> None:
    assert memory_text(trend) == told


def test_failure_report_has_hint_beside_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = FailureLine(
        of="attempt",
        reason="gpu_out_of_memory",
        count=2,
        last_at=utcnow(),
        message="no room",
        memory=(make_trend(),),
    )

    table = failures_table(FailuresView(start_at=utcnow(), end_at=utcnow(), lines=(line,)))
    print_csv((line,))

    assert table.rows[0][-1].startswith("no room; gpu-1/0 growing: 20000")
    assert "index=0 name=A100 start_mb=20000" in capsys.readouterr().out


def test_failures_alike_are_told_what_to_do_once() -> None:
    lines = failure_lines(
        [make_failed(1), make_failed(2, "ask somebody"), make_failed(3)], log_lines=1
    )

    assert [line.strip() for line in lines if "experiment" not in line] == [
        "last of 1",
        "last of 3",
        "what to do: use more GPUs",
        "last of 2",
        "what to do: ask somebody",
    ]


def test_failure_without_hint_is_shown() -> None:
    old = make_experiment(
        state=ExperimentState.FAILED,
        failure=Failure(kind=FailureKind.ENGINE_EXITED, message="exit 1"),
        executor_id=None,
    )

    assert failure_lines([old, make_experiment()], log_lines=3) == [
        f"experiment {old.ordinal} failed: engine_exited: exit 1"
    ]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"low": 90, "high": 97, "estimate": 93.42}, "93.42 (90 to 97)"),
        ({"low": 256, "high": None, "estimate": 256}, "256 or more"),
        ({"low": None, "high": 1, "estimate": None}, "none"),
    ],
)
def test_greatest_load_is_shown_with_bracket(found: dict[str, Any], text: str) -> None:
    boundary = LoadBoundary(load=LoadKind.CONCURRENCY, cliff=True, **found)
    experiment = make_experiment(
        1, objective_score=found["estimate"] or 0.0, metrics=make_metrics(boundary=boundary)
    )

    table = result_table([experiment], Objective.MAXIMIZE_LOAD)

    assert dict(zip(table.headings, table.rows[0], strict=True))["max load"] == text
    (line,) = boundary_lines([experiment], Objective.MAXIMIZE_LOAD)
    assert line == "experiment 1 misses the constraints by far just above its max load"
