"""What the live view of GPUs shows: joined, sorted, filtered, summed up, in 80 columns."""

from datetime import timedelta

import pytest

from schemas.gateway.views import GpuMetrics
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.views import DeviceHolder
from schemas.telemetry.readings import HealthState
from services.cli.display.output import plain_text
from services.cli.top.fleet_rows import FleetState, SortKey, bar, summary, top_table
from shared.ids import new_id
from tests.support.worlds.gateway_views import NODE, NOW, make_gpu, make_reservation

HOLDER = new_id()


def make_fleet(node_id: str | None = None, namespace: str | None = None) -> FleetState:
    held = make_gpu(
        0,
        state=DeviceState.HELD,
        reservation_id=HOLDER,
        namespace="team-a",
        holder="notebook",
        utilization_percent=97.0,
        memory_used_mb=70_000,
        age_seconds=1.0,
    )
    idle = make_gpu(1, utilization_percent=None, power_draw_w=None, health=HealthState.FAILING)
    reservation = make_reservation(
        reservation_id=HOLDER, lease_expires_at=NOW + timedelta(seconds=25)
    )
    state = FleetState(node_id, namespace)
    state.apply_ledger([held, idle, make_gpu(2, node_id="beta")], [reservation], now=100.0)
    return state


def test_top_row_fits_80_columns() -> None:
    rows = make_fleet().rows(102.0)

    text = plain_text(top_table(rows, NOW), 80)

    assert all(len(line) <= 80 for line in text.split("\n"))
    first = text.split("\n")[1]
    for said in ("alpha", "██████  97%", "█████░  68G", "notebook", "25s", "3s", "sim"):
        assert said in first, text


def test_reading_replaces_older_and_keeps_holder() -> None:
    state = make_fleet()
    reading = make_gpu(0, state=None, utilization_percent=50.0)
    metrics = GpuMetrics(
        node_id=NODE, sequence=2, observed_at=NOW, simulated=True, gpus=(reading,), age_seconds=0.5
    )

    state.apply_readings(metrics, now=103.0)
    state.apply_ledger([make_gpu(0, age_seconds=9.0, holder="next")], [], now=104.0)
    row = state.rows(105.0)[0]

    assert row.gpu.utilization_percent == 50.0  # the ledger's answer had an older reading
    assert row.gpu.holder == "next"
    assert row.age_seconds == 2.5


def test_removed_ledger_row_disappears() -> None:
    state = make_fleet()

    state.apply_ledger([make_gpu(1)], [], now=101.0)

    assert [row.gpu.index for row in state.rows(101.0)] == [1]


@pytest.mark.parametrize(
    ("sort", "want"),
    [
        pytest.param(SortKey.NODE, [0, 1, 2], id="node, then index"),
        pytest.param(SortKey.UTILIZATION, [0, 2, 1], id="highest first, unknown last"),
        pytest.param(SortKey.POWER, [0, 2, 1], id="equal ones by node"),
        pytest.param(SortKey.LEASE, [0, 1, 2], id="those with a lease first"),
    ],
)
def test_rows_are_sorted_by(sort: SortKey, want: list[int]) -> None:
    assert [row.gpu.index for row in make_fleet().rows(100.0, sort=sort)] == want


def test_the_lease_that_ends_first_comes_first() -> None:
    later = new_id()
    gpus = [make_gpu(0, reservation_id=later), make_gpu(1, reservation_id=HOLDER)]
    ends = {later: 60, HOLDER: 10}
    state = FleetState()

    state.apply_ledger(
        gpus,
        [
            make_reservation(reservation_id=each, lease_expires_at=NOW + timedelta(seconds=seconds))
            for each, seconds in ends.items()
        ],
        now=1.0,
    )

    assert [row.gpu.index for row in state.rows(1.0, sort=SortKey.LEASE)] == [1, 0]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("BETA", [2], id="node"),
        pytest.param("notebook", [0], id="holder"),
        pytest.param("team-a", [0], id="namespace"),
        pytest.param("failing", [1], id="health"),
        pytest.param("nowhere", [], id="nothing"),
    ],
)
def test_a_filter_keeps_what_says_so(text: str, want: list[int]) -> None:
    assert [row.gpu.index for row in make_fleet().rows(100.0, text=text)] == want


def test_node_and_namespace_narrow_the_view() -> None:
    shared = make_gpu(3, holders=(DeviceHolder(reservation_id=HOLDER, shares=0.5, namespace="b"),))
    state = make_fleet(namespace="b")
    state.apply_ledger([make_gpu(0), shared], [], now=1.0)

    assert [row.gpu.index for row in make_fleet(node_id="beta").rows(100.0)] == [2]
    assert [row.gpu.index for row in make_fleet(namespace="team-a").rows(100.0)] == [0]
    assert [row.gpu.index for row in state.rows(1.0)] == [3]


def test_summary_counts_and_marks_simulated() -> None:
    rows = make_fleet().rows(100.0)

    assert (
        summary(rows)
        == "3 GPUs on 2 nodes  1 held  2 free  util 48%  0.1 kW  1 unhealthy  simulated"
    )
    assert summary([]) == "0 GPUs on 0 nodes  0 held  0 free"


def test_what_is_unknown_has_no_bar() -> None:
    assert bar(None, "-%") == "-"
    assert bar(150.0, "150%") == "██████ 150%"
    assert bar(0.0, "0%") == "░░░░░░   0%"
