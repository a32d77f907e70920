"""Questions to the scheduler over nats-server and Postgres: why, what if, what was decided."""

from datetime import timedelta
from uuid import UUID

import pytest

from schemas.cluster.node_selection import (
    ClusterStatus,
    GetClusterStatus,
    GetNodeSummaries,
    NodeSummaries,
)
from schemas.errors import ErrorCode
from schemas.gpus.available_gpus import AvailableGpus, ListAvailableGpus
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.policy import PolicyTrial, TriedPolicy, TryPolicy
from schemas.scheduler.reasons import ChangeKind, ReasonCode
from schemas.scheduler.reservations import (
    ReservationRejected,
    ReservationState,
    ReservationTimedOut,
)
from schemas.scheduler.views import (
    AvailabilityView,
    DecisionList,
    DriftList,
    ExplainReservation,
    Explanation,
    GetAvailability,
    GetReservation,
    ListDecisions,
    ListDrifts,
    ListReservations,
    Replay,
    ReplayDecisions,
    ReservationList,
    ReservationView,
    WhatIf,
)
from services.scheduler.domain.placement.placement import Weights
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.handlers.history_queries import HistoryQueries
from services.scheduler.ledger.migrations import MIGRATIONS
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id
from shared.postgres.database import Database
from shared.testing import eventually
from tests.support.worlds.scheduler import FakeGpu, World, accepted, ledger, scheduler, world


async def explain(around: World, reservation_id: UUID) -> Explanation:
    return await around.bus.query(ExplainReservation(reservation_id=reservation_id), Explanation)


async def test_waiting_request_is_told_what_would_help(
    steward: World,
) -> None:
    await steward.add_node("alpha", 4)
    await steward.known("alpha", 4)
    held = await steward.granted(
        await steward.request(GpuRequest(gpus=2, expected_duration_seconds=600.0))
    )
    reservation_id = await steward.request(GpuRequest(gpus=3))
    await steward.waiting(reservation_id, ReasonCode.HELD)

    told = await explain(steward, reservation_id)
    instead = await steward.bus.query(
        WhatIf(reservation_id=reservation_id, request=GpuRequest(gpus=2)), AvailabilityView
    )
    arriving_request = await steward.bus.query(
        GetAvailability(request=GpuRequest(gpus=2)), AvailabilityView
    )

    assert (told.queue_position, told.queue_length) == (1, 1)
    assert {reason.code for reason in told.reasons} == {
        ReasonCode.HELD,
        ReasonCode.TOO_FEW_DEVICES,
    }
    holders = {each.message for each in told.reasons if each.code is ReasonCode.HELD}
    held_by = f"held by somebody (reservation {str(held.reservation_id)[-12:]}, for "
    assert all(held_by in message and "min more)" in message for message in holders)
    assert told.suggestion is not None
    assert told.suggestion.changes == (ChangeKind.FEWER_GPUS,)
    assert told.suggestion.request.gpus == 2
    assert told.expected_start_at is not None
    granted_at = (await steward.view(held.reservation_id)).granted_at
    assert granted_at is not None
    assert (told.expected_start_at - granted_at).total_seconds() == 600.0
    assert told.expected_node_ids == ("alpha",)
    assert instead.available
    assert not arriving_request.available
    assert any("queued for" in reason.message for reason in arriving_request.reasons)
    assert {reason.code for reason in arriving_request.reasons} & {
        ReasonCode.BEHIND_IN_QUEUE,
        ReasonCode.KEPT_FOR_EARLIER,
    }
    assert (await steward.view(reservation_id)).state is ReservationState.QUEUED


async def test_reasons_name_foreign_holders_by_rights(
    steward: World,
) -> None:
    await steward.add_node("alpha", 1)
    held = await steward.request(GpuRequest(), namespace="a", holder="secret-job")
    await steward.granted(held)
    asked = await steward.request(GpuRequest(wait_timeout_seconds=60), namespace="b")
    await steward.waiting(asked, ReasonCode.HELD)

    async def told(names_of: tuple[str, ...] | None) -> list[bool]:
        query = ExplainReservation(reservation_id=asked, names_of=names_of)
        explained = await steward.bus.query(query, Explanation)
        one = await steward.bus.query(
            GetReservation(reservation_id=asked, names_of=names_of), ReservationView
        )
        listed = await steward.bus.query(ListReservations(names_of=names_of), ReservationList)
        first = listed.reservations[0]
        texts = [explained.summary, str(explained.reasons), one.summary, first.summary]
        return ["secret-job" in text for text in texts]

    assert await told(()) == [False] * 4
    assert await told(("b", "c")) == [False] * 4
    assert await told(("a",)) == [True] * 4
    assert await told(None) == [True] * 4


async def test_ended_wait_names_holders_by_rights(steward: World) -> None:
    await steward.add_node("alpha", 1)
    held = await steward.request(GpuRequest(), namespace="a", holder="secret-job")
    await steward.granted(held)
    asked = await steward.request(GpuRequest(wait_timeout_seconds=1), namespace="b")
    event = await steward.event(ReservationTimedOut, asked)

    async def text(names_of: tuple[str, ...] | None) -> str:
        query = GetReservation(reservation_id=asked, names_of=names_of)
        view = await steward.bus.query(query, ReservationView)
        explain_query = ExplainReservation(reservation_id=asked, names_of=names_of)
        explained = await steward.bus.query(explain_query, Explanation)
        assert [reason.message for reason in view.reasons] == [
            reason.message for reason in explained.reasons
        ]
        return str(view.reasons)

    own, everybody = await text(()), await text(None)

    assert "held by another namespace" in own
    assert str(held) not in own
    assert "held by secret-job" in everybody
    assert "another namespace" in str(event.reasons)
    assert "secret-job" not in str(event.reasons)


async def test_grant_tells_its_expected_start(steward: World) -> None:
    await steward.add_node("alpha", 2)
    await steward.known("alpha", 2)
    held = await steward.granted(
        await steward.request(GpuRequest(gpus=2, expected_duration_seconds=600.0))
    )
    waits = await steward.request(GpuRequest(gpus=1))
    held_view = await steward.view(held.reservation_id)
    assert held_view.granted_at is not None
    expected = held_view.granted_at + timedelta(seconds=600)

    async def is_forecast() -> bool:
        return (await steward.view(waits)).forecast_start_at is not None

    await eventually(is_forecast, what="a forecast of the start")
    accepted(await steward.release(held))
    granted = await steward.granted(waits)

    assert held_view.forecast_start_at is None
    assert (await steward.view(waits)).forecast_start_at == expected
    assert granted.forecast_start_at == expected


async def test_applied_suggestion_is_granted(
    steward: World,
) -> None:
    await steward.add_node("alpha", [FakeGpu("GPU-a", 0, utilization_percent=72.0)])
    await steward.known("alpha", 1)
    reservation_id = await steward.request()
    await steward.waiting(reservation_id, ReasonCode.UTILIZATION_ABOVE_LIMIT)
    told = await explain(steward, reservation_id)
    assert told.suggestion is not None
    accepted(await steward.cancel(reservation_id))

    granted = await steward.granted(await steward.request(told.suggestion.request))

    assert granted.devices[0].uuid == "GPU-a"
    assert (await explain(steward, granted.reservation_id)).reasons == ()
    with pytest.raises(RefusedError) as refused:
        await steward.bus.query(
            WhatIf(reservation_id=granted.reservation_id, request=GpuRequest()), AvailabilityView
        )
    assert refused.value.code is ErrorCode.CONFLICT


async def test_rejected_request_is_told_what_would_fit(steward: World) -> None:
    await steward.add_node("alpha", 2)
    await steward.known("alpha", 2)
    reservation_id = await steward.request(GpuRequest(gpus=3))
    await steward.event(ReservationRejected, reservation_id)

    told = await explain(steward, reservation_id)
    asked = await steward.bus.query(GetAvailability(request=GpuRequest(gpus=3)), AvailabilityView)

    assert told.state is ReservationState.REJECTED
    assert asked.impossible
    assert asked.reasons == told.reasons
    assert told.reasons[0].code is ReasonCode.EXCEEDS_LARGEST_NODE
    assert told.suggestion is not None
    assert told.suggestion.request.gpus == 2
    assert told.expected_start_at is None


async def test_available_gpus_match_a_request_for_one(steward: World) -> None:
    gpus = [
        FakeGpu("GPU-held", 0),
        FakeGpu("GPU-busy", 1, utilization_percent=72.0),
        FakeGpu("GPU-half", 2, memory_used_mb=60_000),
        FakeGpu("GPU-idle", 3),
        FakeGpu("GPU-untold", 4, utilization_percent=None),
    ]
    await steward.add_node("alpha", gpus)
    await steward.known("alpha", 5)
    await steward.granted(await steward.request(GpuRequest(device_uuids=("GPU-held",))))

    async def free(**wanted: int) -> list[str]:
        query = ListAvailableGpus(node_id="alpha", **wanted)
        return [gpu.uuid for gpu in (await steward.bus.query(query, AvailableGpus)).gpus]

    assert await free() == ["GPU-idle", "GPU-half"]
    assert await free(min_memory_mb=40_000) == ["GPU-idle"]
    assert await free(max_utilization_percent=80) == ["GPU-idle", "GPU-busy", "GPU-half"]
    with pytest.raises(RefusedError) as refused:
        await steward.bus.query(ListAvailableGpus(node_id="beta"), AvailableGpus)
    assert refused.value.code is ErrorCode.NOT_FOUND


async def test_replayed_decisions_are_the_same(
    steward: World,
) -> None:
    await steward.add_node("alpha", 2)
    await steward.known("alpha", 2)
    first = await steward.granted(await steward.request())
    second = await steward.granted(await steward.request(GpuRequest(priority=3)))
    third = await steward.request()
    accepted(await steward.release(first))
    await steward.granted(third)

    listed = await steward.bus.query(ListDecisions(), DecisionList)
    again = await steward.bus.query(ReplayDecisions(), Replay)
    of_one = await steward.bus.query(ReplayDecisions(reservation_id=third), Replay)
    last_id = listed.decisions[-1].decision_id
    newest = ListDecisions(before_id=last_id + 1, limit=2)
    newest_first = await steward.bus.query(newest, DecisionList)

    assert [d.decision_id for d in newest_first.decisions] == [last_id, last_id - 1]
    assert newest_first.next_before_id == last_id - 1
    assert listed.decisions[0].keyframe
    assert [d.decision_id for d in again.decisions] == [d.decision_id for d in listed.decisions]
    assert len(again.decisions) >= 3
    assert (again.checked, again.different) == (len(listed.decisions), 0)
    assert all(decision.same and decision.replayed is None for decision in again.decisions)
    assert len(of_one.decisions) == 1
    assert of_one.decisions[0].recorded[0]["reservation_id"] == str(third)
    assert of_one.keyframe_id == listed.decisions[0].decision_id
    assert second.epoch > first.epoch


async def test_recorded_requests_run_under_other_policy(steward: World) -> None:
    week = utcnow() - timedelta(days=7)
    with pytest.raises(RefusedError) as nothing:
        await steward.bus.query(TryPolicy(policy=TriedPolicy.DENSITY, since_at=week), PolicyTrial)
    await steward.add_node("alpha", 2)
    await steward.known("alpha", 2)
    first = await steward.granted(await steward.request(GpuRequest(gpus=2)))
    waiting = await steward.request()
    accepted(await steward.release(first))
    granted = await steward.granted(waiting)

    found = await steward.bus.query(
        TryPolicy(policy=TriedPolicy.DENSITY, since_at=week), PolicyTrial
    )

    assert nothing.value.code is ErrorCode.NOT_FOUND
    assert (found.present.requests, found.present.granted) == (2, 2)
    assert (found.tried.requests, found.tried.granted) == (2, 2)
    assert found.recorded_p95_seconds is not None
    assert abs(found.recorded_p95_seconds - granted.waited_seconds) < 1
    assert found.present.p95_seconds is not None
    assert found.present.p95_seconds <= found.recorded_p95_seconds
    assert [each.namespace for each in found.present.namespaces] == ["default"]
    assert found.left_out


async def test_replay_uses_the_policy_of_its_time(steward: World, postgres_dsn: str) -> None:
    half_full = FakeGpu("GPU-a", 0, memory_used_mb=20_000)
    await steward.add_node("alpha", [half_full])
    await steward.granted(await steward.request())
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    await database.open()
    changed = Policy(weights=Weights(memory=0.1, utilization=0.9))

    try:
        again = await HistoryQueries(database, changed).replay(ReplayDecisions())
    finally:
        await database.close()

    assert (again.checked, again.different) == (1, 0)


async def test_different_replay_tells_both_decisions(steward: World, postgres_dsn: str) -> None:
    await steward.add_node("alpha", 1)
    reservation_id = (await steward.granted(await steward.request())).reservation_id
    async with ledger(postgres_dsn) as connection:
        await connection.execute(
            "UPDATE decision SET outcomes = replace(outcomes, $1, $2)",
            str(reservation_id),
            str(new_id()),
        )

    again = await steward.bus.query(ReplayDecisions(), Replay)

    assert again.different == 1
    assert not again.decisions[0].same
    assert again.decisions[0].replayed[0]["reservation_id"] == str(reservation_id)


async def test_cluster_status_lists_gpus_by_node(steward: World) -> None:
    busy = FakeGpu("GPU-b", 0, utilization_percent=80.0, memory_used_mb=60_000)
    await steward.add_node("alpha", 2)
    await steward.add_node("beta", [busy])
    await steward.known("alpha", 2)
    await steward.known("beta", 1)
    await steward.granted(await steward.request(GpuRequest(node_ids=("alpha",))))

    bus = steward.bus
    status = await bus.query(GetClusterStatus(), ClusterStatus)
    later = await bus.query(GetClusterStatus(after_node_id="alpha"), ClusterStatus)
    summaries = (await bus.query(GetNodeSummaries(), NodeSummaries)).nodes
    lenient = await bus.query(
        GetNodeSummaries(utilization_threshold=80.1, memory_threshold=75.1), NodeSummaries
    )
    drifts = await bus.query(ListDrifts(node_id="alpha", ended=True), DriftList)

    assert [gpu.node_name for gpu in status.gpus] == ["alpha", "alpha", "beta"]
    assert status.next_after_node_id is None
    assert [gpu.gpu_uuid for gpu in later.gpus] == ["GPU-b"]
    assert later.gpus[0].memory_usage_percent == 75.0
    assert (summaries["alpha"].total_gpus, summaries["alpha"].allocatable_gpus) == (2, 1)
    assert summaries["beta"].idle_gpu_count == 0
    assert lenient.nodes["beta"].idle_gpu_count == 1
    assert drifts.drifts == ()


async def test_a_standby_answers_as_the_leader_does(nats_url: str, postgres_dsn: str) -> None:
    async with (
        scheduler(nats_url, postgres_dsn),
        scheduler(nats_url, postgres_dsn),
        world(nats_url) as around,
    ):
        await around.add_node("alpha", 1)
        await around.granted(await around.request())
        waiting = [await around.request() for _ in range(3)]
        await around.waiting(waiting[-1], ReasonCode.HELD)

        for _ in range(4):
            positions = [(await explain(around, each)).queue_position for each in waiting]
            listed = await around.bus.query(
                ListReservations(states=(ReservationState.QUEUED,)), ReservationList
            )
            assert positions == [1, 2, 3]
            assert [view.queue_position for view in listed.reservations] == [3, 2, 1]


async def test_density_decisions_replay_the_same(nats_url: str, postgres_dsn: str) -> None:
    async with scheduler(nats_url, postgres_dsn, density=True), world(nats_url) as around:
        for node_id in ("alpha", "beta"):
            await around.add_node(node_id, 2)
            await around.known(node_id, 2)
        first = await around.granted(await around.request(GpuRequest(shares=0.5)))
        await around.granted(await around.request(GpuRequest()))
        pair = await around.granted(await around.request(GpuRequest(gpus=2)))
        waiting = await around.request(GpuRequest(gpus=2))

        said = await explain(around, waiting)
        accepted(await around.release(pair))
        accepted(await around.release(first))
        await around.granted(waiting)
        listed = await around.bus.query(ListDecisions(), DecisionList)
        again = await around.bus.query(ReplayDecisions(), Replay)

    assert said.reasons
    assert any(one["type"] == "demand_seen" for one in listed.decisions[0].inputs)
    assert (again.checked, again.different) == (len(listed.decisions), 0)
