"""When a disagreement of the ledgers is a drift, how long it lasts, and what is done about it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.scheduler.drifts import DriftAction, DriftKind
from services.scheduler.domain.drift.detection import (
    DeviceUse,
    Holding,
    NodeUse,
    Process,
    Workload,
    compare_ledgers,
    foreign_processes,
    measure_unlisted_mb,
    system_names,
)
from services.scheduler.domain.drift.lifecycle import (
    Comparison,
    Drift,
    DriftKey,
    DriftUpdate,
    Finding,
    Limits,
    Suspicion,
    update_drifts,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = Limits(system_processes=system_names(("Xorg", "nvidia-persistenced")))
MINE, OTHER, OVER = (UUID(int=n) for n in (1, 2, 3))


def held(reservation_id: UUID = MINE, **changes: Any) -> Holding:
    given = {"node_id": "alpha", "device_uuid": "GPU-0", "epoch": 7, "lease_ttl_seconds": 30.0}
    return Holding(**{"reservation_id": reservation_id, **given, **changes})


def device(*processes: Process, **changes: Any) -> DeviceUse:
    given: dict[str, Any] = {"uuid": "GPU-0", "name": "H100", "utilization_percent": 50.0}
    return DeviceUse(**{**given, "processes": processes, **changes})


def node(*devices: DeviceUse, **changes: Any) -> NodeUse:
    return NodeUse(**{"node_id": "alpha", "devices": devices, "workloads": (), **changes})


def compare(
    *holdings: Holding, at: NodeUse, known: tuple[UUID, ...] = (MINE, OTHER, OVER)
) -> Comparison:
    return compare_ledgers(holdings, (at,), frozenset(known), LIMITS)


def kinds(seen: Comparison) -> list[DriftKind]:
    return [finding.kind for finding in seen.findings]


@pytest.mark.parametrize(
    ("holding", "at", "expected"),
    [
        pytest.param(
            held(),
            node(device(Process(pid=1, reservation_id=MINE))),
            [],
            id="its holder's process is no drift",
        ),
        pytest.param(
            held(), node(device(Process(pid=1))), [], id="a process without label is its holder's"
        ),
        pytest.param(
            None,
            node(device(Process(pid=1))),
            [DriftKind.SQUATTER],
            id="a process on a free device is a squatter",
        ),
        pytest.param(
            None,
            node(device(Process(pid=1, name="Xorg"), Process(pid=2, name="nvidia-persiste"))),
            [],
            id="what every host runs is none",
        ),
        pytest.param(
            held(),
            node(device(Process(pid=1, reservation_id=UUID(int=9)))),
            [DriftKind.SQUATTER],
            id="a label that the ledger never knew is a squatter's",
        ),
        pytest.param(
            None,
            node(device(Process(pid=1, reservation_id=OVER))),
            [DriftKind.ORPHAN_WORKLOAD],
            id="what runs under a reservation that is over is an orphan",
        ),
        pytest.param(
            held(device_uuid="GPU-1"),
            node(device(Process(pid=1, reservation_id=MINE))),
            [DriftKind.SQUATTER],
            id="a live reservation's process on a device it does not hold is a squatter",
        ),
        pytest.param(
            held(quarantined=True),
            node(device(), workloads=(Workload(reservation_id=MINE, pids=(4,)),)),
            [DriftKind.ORPHAN_WORKLOAD],
            id="what outlives its reservation is an orphan",
        ),
        pytest.param(
            held(node_id="beta"),
            node(device(), workloads=(Workload(reservation_id=MINE, pids=(4,), node_id="beta"),)),
            [],
            id="what another node of the same host runs is none",
        ),
        pytest.param(
            held(node_id="beta"),
            node(device(), workloads=(Workload(reservation_id=MINE, pids=(4,), node_id="gamma"),)),
            [DriftKind.ORPHAN_WORKLOAD],
            id="what names a node that its reservation does not hold is an orphan",
        ),
        pytest.param(
            held(),
            node(device(), workloads=(Workload(reservation_id=MINE, epoch=6, pids=(4,)),)),
            [DriftKind.ORPHAN_WORKLOAD],
            id="an older epoch is an orphan's",
        ),
        pytest.param(
            held(),
            node(device(), workloads=(Workload(reservation_id=MINE, epoch=7),)),
            [],
            id="an attempt without any process yet is in use",
        ),
        pytest.param(
            held(), node(device()), [DriftKind.GHOST_RESERVATION], id="nothing runs: a ghost"
        ),
        pytest.param(
            held(),
            node(device(processes=None, utilization_percent=60.0)),
            [],
            id="busy without any process to be told is in use",
        ),
        pytest.param(
            held(),
            node(device(processes=None, utilization_percent=LIMITS.idle_percent)),
            [],
            id="at the limit it is in use",
        ),
        pytest.param(
            held(),
            node(device(Process(pid=1), utilization_percent=2.0)),
            [DriftKind.UNDERUSE],
            id="held and idle is underused",
        ),
        pytest.param(
            held(), node(device(), workloads=None), [], id="without its executor's word no ghost"
        ),
        pytest.param(
            held(), node(device(is_read=False)), [], id="without a reading nothing is said"
        ),
        pytest.param(None, node(silent_seconds=16.0), [DriftKind.STALE_AGENT], id="silent agent"),
        pytest.param(None, node(silent_seconds=None), [], id="silence not measured yet"),
    ],
)
def test_a_look_finds(holding: Holding | None, at: NodeUse, expected: list[DriftKind]) -> None:
    assert kinds(compare(*([holding] if holding else []), at=at)) == expected


@pytest.mark.parametrize(
    ("at", "expected"), [({}, "is silent"), ({"was_stopped": True}, "has stopped")]
)
def test_quiet_node_is_silent_or_stopped(at: dict[str, Any], expected: str) -> None:
    (finding,) = compare(at=node(silent_seconds=16.0, **at)).findings

    assert finding.detail == f"its telemetry agent {expected}"


def test_foreign_installation_label_is_ignored() -> None:
    foreign = Workload(reservation_id=UUID(int=9), pids=(5,), is_ours=False)
    ours = Workload(reservation_id=UUID(int=9), pids=(5,), is_ours=True)

    assert kinds(compare(at=node(workloads=(foreign,)))) == []
    assert kinds(compare(at=node(workloads=(ours,)))) == [DriftKind.ORPHAN_WORKLOAD]


def test_gang_running_on_one_node_is_no_ghost() -> None:
    parts = (held(), held(node_id="beta"))
    idle = node(device())
    busy = node(device(Process(pid=1, reservation_id=MINE)), node_id="beta")
    unheard = node(device(is_read=False), node_id="beta")

    def found(*nodes: NodeUse) -> list[DriftKind]:
        return kinds(compare_ledgers(parts, nodes, frozenset({MINE}), LIMITS))

    assert found(idle, busy) == []
    assert found(idle, unheard) == []
    assert found(idle, node(device(), node_id="beta")) == [DriftKind.GHOST_RESERVATION]


def test_squatter_is_told_with_its_processes() -> None:
    seen = compare(
        at=node(device(Process(pid=9, name="python", memory_used_mb=512), Process(pid=3)))
    )

    (squatter,) = seen.findings
    assert (squatter.action, squatter.pids) == (DriftAction.AVOID, (3, 9))
    assert "python" in squatter.detail
    assert "512 MB" in squatter.detail


def test_only_the_holder_explains_a_process() -> None:
    processes = (Process(pid=1), Process(pid=2, reservation_id=MINE), Process(pid=3, name="Xorg"))

    def pids(holder: UUID | None) -> list[int]:
        return [
            p.pid
            for p in foreign_processes(
                processes, {holder} if holder else set(), LIMITS.system_processes
            )
        ]

    assert pids(MINE) == []
    assert pids(OTHER) == [2]
    assert pids(None) == [1, 2]
    assert foreign_processes(None, set(), frozenset()) == ()


SQUATTER = Finding(
    kind=DriftKind.SQUATTER,
    node_id="alpha",
    device_uuid="GPU-0",
    action=DriftAction.AVOID,
    detail="a process",
    pids=(1,),
)
GHOST = Finding(
    kind=DriftKind.GHOST_RESERVATION,
    node_id="alpha",
    reservation_id=MINE,
    action=DriftAction.RELEASE,
    detail="nothing runs",
)


def watch(
    seen: Comparison,
    *,
    drifts: tuple[Drift, ...] = (),
    before: Mapping[DriftKey, Suspicion] = {},
    elapsed_seconds: float = 0.0,
    now: datetime = NOW,
    lease: float = 30.0,
) -> DriftUpdate:
    return update_drifts(
        drifts,
        before,
        seen,
        now=now,
        elapsed_seconds=elapsed_seconds,
        limits=LIMITS,
        leases={MINE: lease},
    )


def test_finding_becomes_drift_after_grace() -> None:
    seen = Comparison(findings=(SQUATTER,))
    first = watch(seen)
    early = watch(seen, before=first.suspicions, elapsed_seconds=9.0, now=NOW + timedelta(hours=1))
    due = watch(seen, before=early.suspicions, elapsed_seconds=1.0)
    again = watch(seen, drifts=due.new_drifts)

    assert not first.new_drifts
    assert not early.new_drifts, "a clock that jumps makes no drift"
    assert [drift.since_at for drift in due.new_drifts] == [NOW]
    assert (again.new_drifts, again.changed, again.ended) == ((), (), ())
    assert again.lasting == due.new_drifts


def test_short_finding_is_no_drift() -> None:
    first = watch(Comparison(findings=(SQUATTER,)))
    gone = watch(Comparison(findings=()), before=first.suspicions, elapsed_seconds=9.0)
    back = watch(Comparison(findings=(SQUATTER,)), before=gone.suspicions, elapsed_seconds=9.0)

    assert not gone.suspicions
    assert not back.new_drifts


def test_a_ghost_is_given_a_whole_lease_at_least() -> None:
    seen = Comparison(findings=(GHOST,))
    first = watch(seen)
    short = watch(seen, before=first.suspicions, elapsed_seconds=301.0)
    long = watch(seen, before=first.suspicions, elapsed_seconds=301.0, lease=600.0)

    assert len(short.new_drifts) == 1
    assert not long.new_drifts


@pytest.mark.parametrize(
    ("ahead_seconds", "says"),
    [(600.0, "10 min ahead of"), (-602.0, "10 min behind"), (61.0, "1 min ahead of"), (59.0, None)],
)
def test_a_clock_that_is_minutes_off_is_told(ahead_seconds: float, says: str | None) -> None:
    seen = compare(at=node(clock_ahead_seconds=ahead_seconds))

    assert [says in finding.detail for finding in seen.findings if says] == [True] * (
        says is not None
    )
    assert set(kinds(seen)) <= {DriftKind.CLOCK_SKEW}
    assert bool(kinds(seen)) is (says is not None)


def test_a_clock_that_is_not_read_ends_no_drift() -> None:
    key = (DriftKind.CLOCK_SKEW, "alpha", None, None)

    assert not compare(at=node(clock_ahead_seconds=None)).sees(key)


def test_a_silent_agent_is_a_drift_at_once() -> None:
    seen = compare(at=node(silent_seconds=16.0))

    first = watch(seen)

    assert [drift.finding.kind for drift in first.new_drifts] == [DriftKind.STALE_AGENT]
    assert not first.suspicions


def test_unseen_drift_neither_begins_nor_ends() -> None:
    drift = Drift(drift_id=UUID(int=5), since_at=NOW, finding=SQUATTER)
    blind = Comparison(findings=(), blind=frozenset({(DriftKind.SQUATTER, "alpha", "GPU-0", None)}))
    suspected = {SQUATTER.key: Suspicion(since_at=NOW, seconds=9.0)}

    kept = watch(blind, drifts=(drift,))
    waiting = watch(blind, before=suspected, elapsed_seconds=60.0)
    gone = watch(Comparison(findings=()), drifts=(drift,))

    assert kept.lasting == (drift,)
    assert not kept.ended
    assert waiting.suspicions == suspected
    assert [ended.drift_id for ended in gone.ended] == [drift.drift_id]


def test_changed_drift_keeps_its_age_and_id() -> None:
    drift = Drift(drift_id=UUID(int=5), since_at=NOW, finding=SQUATTER)
    other = Finding(
        kind=SQUATTER.kind,
        node_id="alpha",
        device_uuid="GPU-0",
        action=SQUATTER.action,
        detail="two processes",
        pids=(1, 2),
    )

    course = watch(Comparison(findings=(other,)), drifts=(drift,), now=NOW + timedelta(minutes=5))

    (changed,) = course.changed
    assert (changed.drift_id, changed.since_at) == (drift.drift_id, NOW)
    assert changed.finding.pids == (1, 2)


@pytest.mark.parametrize(("percent", "is_blind"), [(None, True), (3.0, False)])
def test_use_without_utilization_is_unknown(percent: float | None, is_blind: bool) -> None:
    seen = compare(held(), at=node(device(utilization_percent=percent)))

    assert seen.sees((DriftKind.UNDERUSE, "alpha", "GPU-0", MINE)) is not is_blind


@pytest.mark.parametrize(
    ("processes", "used_mb", "want"),
    [
        pytest.param(None, 900, 900, id="unlisted"),
        pytest.param(None, 300, None, id="no more than an idle GPU uses"),
        pytest.param(None, None, None, id="memory is unknown too"),
        pytest.param((), 900, None, id="there are none"),
        pytest.param((Process(pid=7),), 900, None, id="listed"),
    ],
)
def test_memory_of_unlisted_processes_is_in_use(
    processes: tuple[Process, ...] | None, used_mb: int | None, want: int | None
) -> None:
    assert measure_unlisted_mb(processes, used_mb, 300) == want
