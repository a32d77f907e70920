"""Tables as plain text, and ages and numbers as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from schemas.gateway.views import GpuPodView
from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import CordonCause, CordonState
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import DeviceHolder, ReservationView
from schemas.telemetry.readings import LinkKind
from services.cli.commands.gpus.reservations import closeness_lines
from services.cli.display.columns import Table, fit, needs_notes
from services.cli.display.gpu_tables import gpu_holder, gpu_reason, gpu_table
from services.cli.display.output import age, number, plain_text, settings_text, span
from services.cli.display.tables import numbers_text, reservation_table
from shared.ids import new_id
from tests.support.worlds.gateway_views import NOW, make_gpu


def test_plain_tables_have_no_escape_codes() -> None:
    table = Table(["name", "n"], [["a", "10"], ["long", "7"]], numeric=frozenset({"n"}))

    assert plain_text(table) == "name   n\na     10\nlong   7"


def test_unknown_readings_are_dashes_never_zero() -> None:
    gpu = make_gpu(utilization_percent=None, memory_used_mb=None, power_draw_w=None)

    row = dict(zip(gpu_table([gpu]).headings, gpu_table([gpu]).rows[0], strict=True))

    assert (row["util %"], row["memory MB"], row["power W"]) == ("-", "-/80000", "-/700")
    assert row["source"] == "simulated"


def test_shared_gpu_names_holders_and_shares() -> None:
    first = DeviceHolder(reservation_id=new_id(), shares=0.5, holder="ann")
    second = DeviceHolder(reservation_id=new_id(), shares=0.25)

    shown = gpu_holder(make_gpu(holder="ann", holders=(first, second)))

    assert shown == f"ann 0.50, {str(second.reservation_id)[-12:]} 0.25"
    whole = DeviceHolder(reservation_id=new_id(), shares=1.0, holder="ann")
    assert gpu_holder(make_gpu(holder="ann", holders=(whole,))) == "ann"


def test_stale_readings_are_called_stale() -> None:
    table = gpu_table([make_gpu(fresh=False, simulated=False)])

    assert table.rows[0][table.headings.index("source")] == "stale"


def test_cordoned_gpu_shows_who_why_and_remedy() -> None:
    cordon = CordonState(
        cause=CordonCause.OPERATOR,
        set_by="alice",
        reason="hot",
        since_at=datetime.now(UTC) - timedelta(seconds=125),
        until="it is uncordoned",
    )
    reasons = (
        Reason(code=ReasonCode.UNHEALTHY, message="is hung"),
        Reason(code=ReasonCode.CORDONED, message="is cordoned: hot; set by alice ..."),
    )

    remark = gpu_reason(make_gpu(cordon=cordon, reasons=reasons))

    assert remark == "hot (by alice, 2m ago), until it is uncordoned; is hung"


def test_a_loss_is_told_once() -> None:
    cordon = CordonState(
        cause=CordonCause.NODE_LOST, reason="node lost: not heard for 120 s", until="then"
    )
    reasons = (
        Reason(code=ReasonCode.NODE_LOST, message="is on a node that is lost"),
        Reason(code=ReasonCode.NO_READING, message="has no reading"),
    )

    said = gpu_reason(make_gpu(cordon=cordon, reasons=reasons))

    assert said == "node lost: not heard for 120 s, until then; has no reading"
    assert gpu_reason(make_gpu()) == ""


@pytest.mark.parametrize(("width", "noted"), [(80, True), (None, False)])
def test_cut_reasons_are_noted_below(width: int | None, *, noted: bool) -> None:
    hung = Reason(code=ReasonCode.UNHEALTHY, message="is hung: no answer for a long time by now")
    table = gpu_table([make_gpu(3, reasons=(hung,)), make_gpu(4)])

    assert needs_notes(table, fit(table, width)) is noted
    assert not needs_notes(table.only(["node"]), fit(table, width))
    assert table.notes == [f"{make_gpu().node_id}/3: {hung.message}"]
    assert not gpu_table([make_gpu()]).notes


@pytest.mark.parametrize(
    ("seconds", "want"), [(5, "5s"), (125, "2m"), (7200, "2h"), (200_000, "2d"), (-3, "0s")]
)
def test_ages_use_the_largest_unit_that_fits(seconds: int, want: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == want


def test_numbers_and_spans() -> None:
    assert (number(None), number(1.26, 1)) == ("-", "1.3")
    assert span(1, None, 3) == "1/-/3"
    assert settings_text({"a": 1, "b": "x"}, ["b"]) == "b=x"


def test_multi_node_reservation_shows_every_node() -> None:
    devices = tuple(
        DeviceGrant(node_id=node, uuid=f"GPU-{node}{n}", index=n, name="Test GPU")
        for node in ("alpha", "beta")
        for n in (0, 1)
    )
    gang = ReservationView(
        reservation_id=new_id(),
        namespace="default",
        holder="me",
        state=ReservationState.GRANTED,
        request=GpuRequest(gpus=2, nodes=2),
        revision=2,
        requested_at=NOW,
        node_id="alpha",
        node_ids=("alpha", "beta"),
        devices=devices,
    )

    row = dict(
        zip(reservation_table([gang]).headings, reservation_table([gang]).rows[0], strict=True)
    )

    assert (row["GPUs"], row["node"], row["indices"]) == ("2x2", "alpha,beta", "0,1 0,1")


def test_kubernetes_gpu_shows_its_pods() -> None:
    pod = GpuPodView(namespace="serving", pod="llama-0", container="main")

    assert gpu_holder(make_gpu(pods=(pod, pod))) == "pod serving/llama-0"
    assert gpu_holder(make_gpu(pods=())) == "-"
    assert gpu_holder(make_gpu(holder="exec/ada", pods=(pod,))) == "exec/ada"


@pytest.mark.parametrize(
    ("nearness", "balance", "want"),
    [
        (LinkKind.NVLINK, 0.984, ["joined by nvlink, memory balance 0.98"]),
        (None, 1.0, ["memory balance 1.00"]),
        (None, None, []),
    ],
)
def test_a_grant_says_how_near_its_gpus_are(
    nearness: LinkKind | None, balance: float | None, want: list[str]
) -> None:
    view = ReservationView(
        reservation_id=new_id(),
        namespace="default",
        holder="me",
        state=ReservationState.GRANTED,
        request=GpuRequest(gpus=2),
        revision=2,
        requested_at=NOW,
        nearness=nearness,
        memory_balance=balance,
    )

    assert closeness_lines(view) == want


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([1, 0], "0,1"), ([0, 1, 2, 5, 7, 8, 9, 10], "0-2,5,7-10")],
)
def test_numbers_in_a_row_are_a_range(numbers: list[int], text: str) -> None:
    assert numbers_text(numbers) == text
