"""When a reservation is idle, and what follows: never for one that works or is not known."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.executor.attempts import AttemptPhase
from schemas.executor.engine_samples import EngineReading, EngineSampled
from schemas.scheduler.idle import IdleAction
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import Idleness
from services.scheduler.domain.drift.detection import DeviceUse, Holding, NodeUse, Workload
from services.scheduler.domain.idle import (
    Activity,
    HeldReservation,
    IdlePolicy,
    IdleUpdate,
    actions_by_namespace,
    activities,
    engine_activity,
    idle_sentence,
    update_idle,
)
from services.scheduler.observations.engine_activities import EngineActivities

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINE, OTHER = UUID(int=1), UUID(int=2)
RELEASING = IdlePolicy(window_seconds=60, grace_seconds=30, action=IdleAction.RELEASE)
QUIET = {MINE: Activity.QUIET}
RUNS = (Workload(reservation_id=MINE),)
AT_ALPHA, ELSEWHERE = ("alpha", MINE), ("beta", MINE)


def held(**changes: Any) -> HeldReservation:
    return HeldReservation(**{"reservation_id": MINE, "namespace": "a", **changes})


def update(
    one: HeldReservation,
    activity: Activity,
    quiet: Mapping[UUID, float],
    policy: IdlePolicy = RELEASING,
) -> IdleUpdate:
    return update_idle([one], {MINE: activity}, quiet, now=NOW, elapsed_seconds=10, policy=policy)


def seen(
    *devices: DeviceUse,
    experiment: bool = False,
    workloads: tuple[Workload, ...] | None = (),
    engines: Mapping[tuple[str, UUID], Activity] = {},
) -> Activity:
    holdings = [
        Holding(
            reservation_id=MINE,
            node_id="alpha",
            device_uuid=device.uuid,
            epoch=1,
            lease_ttl_seconds=30,
        )
        for device in devices
    ]
    node = NodeUse(node_id="alpha", devices=devices, workloads=workloads)
    experiments = {MINE} if experiment else set()
    return activities(holdings, [node], experiments, engines, idle_percent=5.0)[MINE]


def gpu(utilization: float | None, uuid: str = "GPU-0", *, is_read: bool = True) -> DeviceUse:
    return DeviceUse(uuid=uuid, name="H100", utilization_percent=utilization, is_read=is_read)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(seen(gpu(0.0)), Activity.QUIET, id="below the limit"),
        pytest.param(seen(gpu(5.0)), Activity.BUSY, id="at the limit"),
        pytest.param(seen(gpu(None)), Activity.UNKNOWN, id="no utilization"),
        pytest.param(seen(gpu(0.0, is_read=False)), Activity.UNKNOWN, id="an old reading"),
        pytest.param(seen(gpu(0.0), gpu(90.0, "GPU-1")), Activity.BUSY, id="one of its GPUs works"),
        pytest.param(
            seen(gpu(0.0), gpu(None, "GPU-1")), Activity.UNKNOWN, id="one of its GPUs is unknown"
        ),
        pytest.param(
            seen(gpu(0.0), experiment=True, workloads=RUNS),
            Activity.BUSY,
            id="an experiment that loads",
        ),
        pytest.param(
            seen(gpu(0.0), experiment=True, workloads=None),
            Activity.UNKNOWN,
            id="an experiment whose executor is silent",
        ),
        pytest.param(
            seen(gpu(0.0), experiment=True),
            Activity.QUIET,
            id="an experiment of which nothing runs",
        ),
        pytest.param(
            seen(gpu(0.0), experiment=True, workloads=RUNS, engines={AT_ALPHA: Activity.QUIET}),
            Activity.QUIET,
            id="an experiment whose engine has no requests",
        ),
        pytest.param(
            seen(gpu(0.0), experiment=True, engines={AT_ALPHA: Activity.BUSY}),
            Activity.BUSY,
            id="an experiment whose engine has requests",
        ),
        pytest.param(
            seen(gpu(90.0), experiment=True, workloads=RUNS, engines={AT_ALPHA: Activity.QUIET}),
            Activity.BUSY,
            id="an experiment that uses its GPU without requests",
        ),
        pytest.param(
            seen(gpu(0.0), experiment=True, workloads=RUNS, engines={ELSEWHERE: Activity.QUIET}),
            Activity.BUSY,
            id="an engine on a node that the experiment does not hold",
        ),
    ],
)
def test_what_a_reservation_did(found: Activity, want: Activity) -> None:
    assert found is want


def test_an_engine_speaks_for_all_nodes_of_its_gang() -> None:
    holdings = [
        Holding(
            reservation_id=MINE,
            node_id=node_id,
            device_uuid="GPU-0",
            epoch=1,
            lease_ttl_seconds=30,
        )
        for node_id in ("alpha", "beta")
    ]
    nodes = [NodeUse(node_id=n, devices=(gpu(0.0),), workloads=RUNS) for n in ("alpha", "beta")]

    found = activities(holdings, nodes, {MINE}, {AT_ALPHA: Activity.QUIET}, idle_percent=5.0)

    assert found == {MINE: Activity.QUIET}


def told(phase: AttemptPhase = AttemptPhase.MEASURING, **reading: float) -> EngineSampled:
    return EngineSampled(
        node_id="alpha",
        experiment_id=OTHER,
        attempt_id=OTHER,
        task_id=OTHER,
        reservation_id=MINE,
        epoch=1,
        sequence=0,
        observed_at=NOW,
        interval_seconds=1.0,
        phase=phase,
        engine="vllm",
        reading=EngineReading(**reading),
    )


@pytest.mark.parametrize(
    ("before", "sample", "want"),
    [
        pytest.param(told(running=0), told(running=0, waiting=0), Activity.QUIET, id="no request"),
        pytest.param(told(running=0), told(running=1), Activity.BUSY, id="one runs"),
        pytest.param(told(running=0), told(running=0, waiting=1), Activity.BUSY, id="one waits"),
        pytest.param(
            told(running=0, generation_tokens=8),
            told(running=0, generation_tokens=9),
            Activity.BUSY,
            id="one came and went between two samples",
        ),
        pytest.param(
            told(AttemptPhase.WARMING_UP, running=0),
            told(running=0),
            Activity.BUSY,
            id="its phase has changed",
        ),
        pytest.param(None, told(running=0), Activity.BUSY, id="it has just come up"),
        pytest.param(told(), told(generation_tokens=1), None, id="it says nothing of requests"),
    ],
)
def test_what_an_engine_did(
    before: EngineSampled | None, sample: EngineSampled, want: Activity | None
) -> None:
    assert engine_activity(before, sample) is want


def test_engine_counts_as_its_busiest_moment() -> None:
    now = 0.0
    engines = EngineActivities(clock=lambda: now)
    for each in (told(running=0), told(running=1), told(running=0), told(running=0)):
        engines.observe(each)

    first, second = engines.take(), engines.take()
    now = 60.0

    assert first == {AT_ALPHA: Activity.BUSY}
    assert second == {AT_ALPHA: Activity.QUIET}
    assert engines.take() == {}


def test_gpus_of_a_cluster_are_unknown() -> None:
    holding = Holding(
        reservation_id=MINE, node_id="k8s", device_uuid=None, epoch=1, lease_ttl_seconds=30
    )

    assert activities([holding], [], set(), {}, idle_percent=5.0) == {MINE: Activity.UNKNOWN}


def test_idle_is_warned_then_released() -> None:
    early = update(held(), Activity.QUIET, {MINE: 49.0})
    warned = update(held(), Activity.QUIET, {MINE: 50.0})
    waits = update(held(warned_at=NOW), Activity.QUIET, {MINE: 79.0})
    over = update(held(warned_at=NOW), Activity.QUIET, {MINE: 80.0})

    assert early.changes == ()
    assert [each.since_at for each in warned.warned] == [NOW - timedelta(seconds=60)]
    assert warned.warned[0].acts_at == NOW + timedelta(seconds=30)
    assert waits.changes == ()
    assert over.released == (MINE,)


def test_warning_is_default_per_namespace_policy() -> None:
    warns = IdlePolicy(window_seconds=60, grace_seconds=30)
    named = IdlePolicy(
        window_seconds=60, grace_seconds=30, by_namespace=actions_by_namespace("a=preemptible")
    )

    assert update(held(), Activity.QUIET, {MINE: 60.0}, warns).warned[0].acts_at is None
    assert update(held(warned_at=NOW), Activity.QUIET, {MINE: 1e6}, warns).changes == ()
    assert update(held(warned_at=NOW), Activity.QUIET, {MINE: 1e6}, named).made_preemptible
    done = held(warned_at=NOW, preemptible=True)
    assert update(done, Activity.QUIET, {MINE: 1e6}, named).changes == ()


def test_use_ends_a_warning_and_its_window() -> None:
    used = update(held(warned_at=NOW), Activity.BUSY, {MINE: 70.0})

    assert (used.active, used.quiet_seconds) == ((MINE,), {MINE: 0.0})


@pytest.mark.parametrize("activity", [Activity.UNKNOWN, Activity.BUSY])
def test_new_leader_watches_before_it_ends(
    activity: Activity,
) -> None:
    """It knows of no quiet time, and its first peak may be from before its term."""
    first = update(held(warned_at=NOW), activity, {})
    quiet: Mapping[UUID, float] = first.quiet_seconds
    rounds = 0
    while not (found := update(held(warned_at=NOW), Activity.QUIET, quiet)).released:
        quiet = found.quiet_seconds
        rounds += 1

    assert first.changes == ()
    assert rounds * 10 >= 80
    assert update(held(), Activity.QUIET, {}).quiet_seconds == {MINE: 0.0}


def test_unknown_moment_restarts_the_window() -> None:
    unknown = update(held(warned_at=NOW), Activity.UNKNOWN, {MINE: 1e6})

    assert (unknown.changes, unknown.quiet_seconds) == ((), {MINE: 0.0})


def test_exempted_reservation_is_not_idle() -> None:
    later = NOW + timedelta(seconds=1)
    exempt = update(held(warned_at=NOW, exempt_until=later), Activity.QUIET, {MINE: 1e6})
    over = update(held(exempt_until=NOW), Activity.QUIET, {MINE: 60.0})

    assert (exempt.active, exempt.quiet_seconds) == ((MINE,), {MINE: 0.0})
    assert [each.reservation_id for each in over.warned] == [MINE]


@pytest.mark.parametrize("text", ["a", "a=end", "=release", "a=release=warn"])
def test_actions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAMESPACE="):
        actions_by_namespace(text)


def test_week_frees_idle_time_and_ends_no_work() -> None:
    """Jobs that work in bursts with pauses below the window, and jobs that were busy once and then
    idle for days: an average over the week says the same of some of both.
    """
    step = 60
    steps = 7 * 24 * 3600 // step
    policy = IdlePolicy(window_seconds=1800, grace_seconds=1800, action=IdleAction.RELEASE)
    allowed = (1800 + 1800) // step
    draw = random.Random(7)
    busy: dict[UUID, list[bool]] = {}
    working: set[UUID] = set()
    for number in range(24):
        one = UUID(int=number + 1)
        timeline: list[bool] = []
        if number % 2:
            working.add(one)
            while len(timeline) < steps:
                timeline += [True] * draw.randint(1, 20) + [False] * draw.randint(0, allowed // 2)
        else:
            stop = draw.randint(1, steps * 2 // 3)
            timeline = [draw.random() < 0.9 for _ in range(stop)] + [False] * (steps - stop)
        busy[one] = timeline[:steps]

    ended: dict[UUID, int] = {}
    warned: dict[UUID, datetime | None] = dict.fromkeys(busy)
    quiet: Mapping[UUID, float] = {}
    for at in range(steps):
        now = NOW + timedelta(seconds=at * step)
        rows = [
            HeldReservation(reservation_id=one, namespace="a", warned_at=warned[one])
            for one in busy
            if one not in ended
        ]
        seen_now = {
            one: Activity.BUSY if timeline[at] else Activity.QUIET for one, timeline in busy.items()
        }
        found = update_idle(rows, seen_now, quiet, now=now, elapsed_seconds=step, policy=policy)
        quiet = found.quiet_seconds
        warned |= {each.reservation_id: now for each in found.warned}
        warned |= dict.fromkeys(found.active)
        ended |= dict.fromkeys(found.released, at)

    idle = freed = 0
    for one, timeline in busy.items():
        if one in working:
            continue
        last = max(at for at, is_busy in enumerate(timeline) if is_busy)
        due = last + allowed
        idle += steps - due
        freed += steps - max(due, ended.get(one, steps))
        assert ended.get(one, steps) >= due
    assert working.isdisjoint(ended)
    assert freed >= 0.95 * idle > 0


@pytest.mark.parametrize(
    ("idle", "says"),
    [
        (
            Idleness(since_at=NOW, action=IdleAction.RELEASE, acts_at=NOW),
            "it is released from",
        ),
        (
            Idleness(since_at=NOW, action=IdleAction.PREEMPTIBLE, acts_at=NOW),
            "it is made preemptible from",
        ),
        (
            Idleness(since_at=NOW, action=IdleAction.PREEMPTIBLE, preemptible=True),
            "any request that waits may have them",
        ),
    ],
)
def test_what_follows_of_being_idle_is_said(idle: Idleness, says: str) -> None:
    assert says in idle_sentence(ReservationState.ACTIVE, idle)


def test_being_idle_may_be_all_there_is_to_say() -> None:
    idle = Idleness(since_at=NOW, action=IdleAction.WARN)

    said = idle_sentence(ReservationState.ACTIVE, idle)

    assert said.startswith("active, but nothing has used its GPUs since ")
    assert "unless" not in said
