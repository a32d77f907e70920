"""What `gpusteward idle` says of reservations that nothing uses."""

from datetime import timedelta
from uuid import UUID

from schemas.gpus.gpu_request import GpuRequest
from schemas.results.reports import IdleLine, IdleView
from schemas.scheduler.idle import IdleAction
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import Idleness, ReservationView
from services.cli.commands.gpus.idle import idle_savings_table, idle_table
from shared.clock import utcnow


def view(idle: Idleness | None, exempt: bool = False) -> ReservationView:
    now = utcnow()
    return ReservationView(
        reservation_id=UUID(int=1),
        namespace="a",
        holder="exec/ada",
        state=ReservationState.ACTIVE,
        request=GpuRequest(),
        revision=3,
        requested_at=now,
        idle=idle,
        idle_exempt_until=now + timedelta(hours=50) if exempt else None,
        idle_exempt_reason="a demo" if exempt else "",
    )


def test_idle_row_has_duration_and_consequence() -> None:
    now = utcnow()
    since = now - timedelta(minutes=40)
    warned = Idleness(since_at=since, action=IdleAction.WARN)
    releasing = Idleness(
        since_at=since, action=IdleAction.RELEASE, acts_at=now + timedelta(minutes=20.4)
    )
    given = Idleness(since_at=since, action=IdleAction.PREEMPTIBLE, preemptible=True)

    rows = idle_table([view(warned), view(releasing), view(given), view(None, exempt=True)]).rows

    assert [row[3:5] for row in rows] == [
        ["40m", "nothing"],
        ["40m", "release in 20m"],
        ["40m", "preemptible until it is used"],
        ["-", "exempted for 2d: a demo"],
    ]


def test_savings_are_by_namespace_and_holder() -> None:
    line = IdleLine(
        namespace="a",
        holder="exec/ada",
        reservations=2,
        freed_gpu_hours=1.5,
        held_gpu_hours=4.0,
        used_again=1,
    )

    table = idle_savings_table(IdleView(start_at=utcnow(), end_at=utcnow(), lines=(line,)))

    assert table.rows == [["a", "exec/ada", "2", "4.00", "1.50", "1"]]
