"""Which columns a table shows on a narrow terminal, and that numbers are never cut."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.reservations import ReservationState
from schemas.task.objectives import Objective
from schemas.telemetry.readings import HealthState
from services.cli.commands.operations.maintenance import drift_table
from services.cli.display.columns import Table, fit, list_hidden_headings
from services.cli.display.gpu_tables import gpu_table
from services.cli.display.output import plain_text
from services.cli.display.tables import experiment_table, node_table, reservation_table, task_table
from services.cli.display.task_results import gpu_result_table, result_table
from shared.ids import new_id
from tests.support.worlds.gateway_views import (
    make_drift,
    make_experiment,
    make_gpu,
    make_grant,
    make_metrics,
    make_monitoring,
    make_node,
    make_reservation,
    make_task,
)

ROWS = Table(
    ["id", "name", "n", "empty", "says"],
    [
        ["a1", "a rather long title", "12345678", "-", "one sentence about it, and another"],
        ["b2", "short", "9", "-", "nothing"],
    ],
    numeric=frozenset({"n"}),
    important=("n",),
    shortened=frozenset({"name"}),
    wrapped=frozenset({"says"}),
)


def gpus() -> Table:
    views = [
        make_gpu(
            index,
            node_id="gpu-node-07",
            name="NVIDIA H200 141GB HBM3e",
            utilization_percent=100.0,
            memory_used_mb=143_000,
            memory_total_mb=143_771,
            temperature_c=65.0,
            power_draw_w=698.0,
            availability_score=0.51,
            state=DeviceState.QUARANTINED,
            holder=f"experiment/{new_id()}",
        )
        for index in range(8)
    ]
    hung = make_gpu(8, health=HealthState.HUNG, health_detail="no answer to NVML for 30 s")
    return gpu_table([*views, hung])


def reservations() -> Table:
    soon = datetime.now(UTC) + timedelta(seconds=28)
    held = make_reservation(
        holder="exec/somebody",
        state=ReservationState.ACTIVE,
        request=GpuRequest(gpus=8, nodes=2, priority=-10),
        node_ids=("gpu-node-07", "gpu-node-08"),
        devices=tuple(make_grant(n) for n in range(8)),
        lease_expires_at=soon,
    )
    return reservation_table([held, make_reservation(state=ReservationState.QUEUED)])


def experiments() -> Table:
    failed = make_experiment(
        12,
        state=ExperimentState.FAILED,
        parameters={"tensor-parallel-size": 8, "max-num-seqs": 256, "chunked-prefill": True},
        reason="the engine ended while it loaded its model; its last words were many",
    )
    return experiment_table([failed, make_experiment(objective_score=1234.5678)])


def results() -> Table:
    scored = [make_experiment(n, objective_score=1.25, metrics=make_metrics()) for n in range(1, 4)]
    return result_table(scored, Objective.MINIMIZE_LATENCY)


def gpu_results() -> Table:
    table = gpu_result_table([make_experiment(gpu_monitoring=make_monitoring())])
    assert table is not None
    return table


LISTS = [
    pytest.param(gpus, id="gpus"),
    pytest.param(lambda: node_table([make_node(), make_node("gpu-node-08")]), id="nodes"),
    pytest.param(reservations, id="reservations"),
    pytest.param(experiments, id="experiments"),
    pytest.param(lambda: task_table([make_task(state=TaskState.CANCELLED)]), id="tasks"),
    pytest.param(results, id="results"),
    pytest.param(gpu_results, id="GPUs while measured"),
]


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("make", LISTS)
def test_list_fits_terminal_without_cut_numbers(make: Callable[[], Table], width: int) -> None:
    table = make()

    lines = plain_text(table, width).splitlines()

    shown = [table.headings[column.number] for column in fit(table, width)]
    numbers = [
        cell
        for row in table.rows
        for heading, cell in zip(table.headings, row, strict=True)
        if heading in table.numeric and heading in shown
    ]
    assert max(map(len, lines)) <= width
    assert all(number in "\n".join(lines) for number in numbers)
    assert [line.split()[0] for line in lines[-len(table.rows) :]] == [
        row[0].split()[0] for row in table.rows
    ]


@pytest.mark.parametrize("make", LISTS)
def test_a_pipe_gets_every_column_in_full(make: Callable[[], Table]) -> None:
    table = make()

    text = plain_text(table)

    assert all(cell in text for row in table.rows for cell in row)
    assert len(text.splitlines()) == len(table.rows) + 1 + bool(table.title)


def test_gpus_at_80_columns_show_main_columns() -> None:
    table = gpus()

    shown = [table.headings[column.number] for column in fit(table, 80)]

    assert {"node", "gpu", "state", "util %", "memory MB", "holder", "source"} <= set(shown)


def test_drift_wraps_without_cutting_words() -> None:
    table = drift_table((make_drift(detail="python on H100 with 100 MB, under no reservation"),))

    text = plain_text(table, 80)

    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "reservation" in text


def test_empty_columns_go_first() -> None:
    assert list_hidden_headings(ROWS, fit(ROWS, 50)) == ["empty"]
    assert list_hidden_headings(ROWS, fit(ROWS, 40)) == ["empty", "says"]
    assert list_hidden_headings(ROWS, fit(ROWS, 20)) == ["name", "empty", "says"]


def test_names_shorten_before_a_column_goes() -> None:
    assert plain_text(ROWS, 51).splitlines() == [
        "id  name                   n  empty  says",
        "a1  a rather long…  12345678  -      one sentence",
        "                                     about it, and",
        "                                     another",
        "b2  short                  9  -      nothing",
    ]


@pytest.mark.parametrize("width", [100, 120, 160])
def test_three_vllm_flags_fit_without_metrics(width: int) -> None:
    flags = [
        {"tensor-parallel-size": n, "max-num-seqs": 32 * n, "enable-chunked-prefill": n < 8}
        for n in (4, 8)
    ]
    runs = [
        make_experiment(n, parameters=each, objective_score=1.0, metrics=make_metrics())
        for n, each in enumerate(flags, 1)
    ]
    table = result_table(runs, Objective.MINIMIZE_LATENCY)

    text = plain_text(table, width)

    shown = [table.headings[column.number] for column in fit(table, width)]
    assert "tensor-parallel-size=8 max-num-seqs=256 enable-chunked-prefill=False" in text
    assert {"rank", "#", "e2e s", "parameters"} <= set(shown)
    assert "id" not in shown


def test_cut_last_column_yields_to_important_ones() -> None:
    table = replace(ROWS, cut_last=frozenset({"name"}), important=("n", "name"))

    assert list_hidden_headings(table, fit(table, 40)) == ["empty", "says"]
    assert "a rather long title" in plain_text(table, 40)
    assert "a rather long…" in plain_text(table, 28)


def test_heading_breaks_at_spaces_for_room() -> None:
    table = Table(["max total tok/s", "e2e p99 s"], [["80.0", "2.000"]])

    assert plain_text(table, 12).splitlines() == [
        "max    e2e",
        "total  p99 s",
        "tok/s",
        "80.0   2.000",
    ]


def test_columns_are_chosen_by_prefix() -> None:
    chosen = ROWS.only(["says", "n"])

    assert (chosen.headings, chosen.rows[1]) == (["says", "n"], ["nothing", "9"])
    with pytest.raises(KeyError, match="nope"):
        ROWS.only(["nope"])
