"""Commands and events that come twice, late, altered, or from a client that knows only NATS."""

import asyncio
from typing import Any

import msgspec
import nats
import pytest
from msgspec.structs import replace
from nats.aio.msg import Msg

from schemas.base import PLATFORM, node_speaker, pattern_for, subject_for
from schemas.errors import ErrorCode, Refused
from schemas.executor.attempts import ExecutorReported
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationGranted,
    ReservationQueued,
    ReservationReleased,
)
from schemas.scheduler.views import AllocationMap, GetAllocationMap
from schemas.telemetry.readings import HealthChanged, HealthKind, HealthState
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.worlds.scheduler import World, accepted, ledger, refused


def a_request(**changes: Any) -> RequestReservation:
    return replace(RequestReservation(command_id=new_id(), reservation_id=new_id()), **changes)


async def test_repeated_command_gets_the_same_answer(steward: World) -> None:
    await steward.add_node("alpha", 2)
    command = a_request()

    first = accepted(await steward.bus.request(command))
    await steward.granted(command.reservation_id)
    second = accepted(await steward.bus.request(command))
    renamed = refused(await steward.bus.request(replace(command, holder="somebody else")))

    assert second == first
    assert renamed.code is ErrorCode.COMMAND_ID_REUSED
    assert len(steward.seen(ReservationQueued)) == 1
    assert len(steward.seen(ReservationGranted)) == 1


async def test_answers_of_a_reservation_outlive_it(steward: World) -> None:
    await steward.add_node("alpha", 1)
    granted = await steward.granted(await steward.request())
    ids: dict[str, Any] = {"reservation_id": granted.reservation_id, "epoch": granted.epoch}
    renewal = RenewReservation(command_id=new_id(), **ids)
    release = ReleaseReservation(command_id=new_id(), stopped=True, **ids)
    first = [accepted(await steward.bus.request(command)) for command in (renewal, release)]

    # With one that is new, so that they may be of one batch.
    *again, late = await asyncio.gather(
        *map(steward.bus.request, (renewal, release, replace(renewal, command_id=new_id())))
    )

    assert again == first
    assert refused(late).code is ErrorCode.LEASE_LOST
    assert len(steward.seen(ReservationReleased)) == 1


async def test_repeated_reservation_must_have_same_body(
    steward: World,
) -> None:
    await steward.add_node("alpha", 2)
    command = a_request()
    accepted(await steward.bus.request(command))

    again = await steward.bus.request(replace(command, command_id=new_id()))
    other = replace(command, command_id=new_id(), request=GpuRequest(gpus=2))

    accepted(again)
    assert refused(await steward.bus.request(other)).code is ErrorCode.CONFLICT
    assert len(steward.seen(ReservationQueued)) == 1


async def test_requester_is_in_view_map_and_events(steward: World) -> None:
    await steward.add_node("alpha", 1)
    asked = await steward.request(holder="training", requester="ada")
    granted = await steward.granted(asked)
    view = await steward.view(asked)
    seen = await steward.bus.query(GetAllocationMap(), AllocationMap)
    accepted(await steward.release(granted))
    ended = await steward.event(ReservationReleased, asked)

    [queued] = steward.seen(ReservationQueued)
    [holder] = seen.nodes[0].devices[0].holders
    assert {queued.requester, granted.requester, ended.requester, view.requester} == {"ada"}
    assert (holder.holder, holder.requester) == ("training", "ada")


async def test_concurrent_equal_requests_stored_once(steward: World, postgres_dsn: str) -> None:
    await steward.add_node("alpha", 2)
    command = a_request()

    replies = await asyncio.gather(
        *(steward.bus.request(replace(command, command_id=new_id())) for _ in range(8))
    )

    assert len([accepted(reply) for reply in replies]) == 8
    async with ledger(postgres_dsn) as connection:
        assert await connection.fetchval("SELECT count(*) FROM reservation") == 1


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        pytest.param(
            GpuRequest(wait_timeout_seconds=float("inf")),
            "$.request.wait_timeout_seconds",
            id="endless wait",
        ),
        pytest.param(GpuRequest(gpu_models=("a\x00",)), "$.request.gpu_models[0]", id="NUL"),
    ],
)
async def test_invalid_request_is_refused_with_its_field(
    steward: World, request_: GpuRequest, path: str
) -> None:
    reply = refused(await steward.bus.request(a_request(request=request_)))

    assert (reply.code, reply.path) == (ErrorCode.BAD_REQUEST, path)


async def test_a_wrong_type_is_refused_with_its_field(steward: World) -> None:
    body = {**msgspec.to_builtins(a_request()), "request": {"gpus": "two"}}

    raw = await steward.bus.nats.request(subject_for(a_request()), encode(body), timeout=30)
    reply = msgspec.msgpack.decode(raw.data)

    assert (reply["type"], reply["code"]) == ("refused", "bad_request")
    assert reply["path"] == "$.request.gpus"


async def test_plain_nats_client_is_answered_by_events(steward: World, nats_url: str) -> None:
    await steward.add_node("alpha", 1)
    reservation_id, heard = str(new_id()), asyncio.Queue[dict[str, Any]]()
    client = await nats.connect(nats_url)

    async def on_event(message: Msg) -> None:
        heard.put_nowait(msgspec.msgpack.decode(message.data))

    await client.subscribe(f"gpusteward.evt.scheduler.*.{reservation_id}", cb=on_event)
    command = {
        "type": "scheduler.request_reservation",
        "command_id": str(new_id()),
        "reservation_id": reservation_id,
        "request": {"gpus": 1},
    }
    await client.publish(
        "gpusteward.cmd.scheduler.request_reservation.default", msgspec.msgpack.encode(command)
    )

    async with asyncio.timeout(30):
        queued, granted = await heard.get(), await heard.get()
    await client.close()
    assert queued["type"] == "scheduler.reservation_queued"
    assert granted["type"] == "scheduler.reservation_granted"
    assert granted["devices"][0]["uuid"] == "GPU-alpha-0"


async def test_late_or_repeated_inventory_is_ignored(steward: World, postgres_dsn: str) -> None:
    node = await steward.add_node("alpha", 2)
    await steward.known("alpha", 2)
    old = await node.report_inventory()
    node.gpus[1].health = HealthState.FAILING
    newest = await node.report_inventory()
    await _health(steward, "GPU-alpha-1", HealthState.FAILING)

    async with ledger(postgres_dsn) as connection:
        before = await connection.fetch("SELECT * FROM device ORDER BY device_no")
        for event in (old, newest, old):
            await steward.bus.publish_stored(subject_for(event), encode(event), new_id())
        sentinel = await steward.add_node("beta", 1)
        await steward.known(sentinel.node_id, 1)
        after = await connection.fetch(
            "SELECT * FROM device WHERE node_id = 'alpha' ORDER BY device_no"
        )

    assert after == before


async def test_missing_device_is_lost_and_keeps_number(steward: World, postgres_dsn: str) -> None:
    node = await steward.add_node("alpha", 2)
    await steward.known("alpha", 2)
    gone = node.gpus.pop()

    async with ledger(postgres_dsn) as connection:
        numbers = await connection.fetch("SELECT device_no, uuid FROM device ORDER BY uuid")
        await node.report_inventory()
        await _health(steward, gone.uuid, HealthState.LOST)
        waiting = await steward.request(GpuRequest(gpus=2))
        await steward.waiting(waiting, ReasonCode.UNHEALTHY)
        node.gpus.append(gone)
        node.boot_id, node.inventory_revision = new_id(), 0
        await node.report_inventory()

        assert len((await steward.granted(waiting)).devices) == 2
        assert numbers == await connection.fetch("SELECT device_no, uuid FROM device ORDER BY uuid")


async def test_grant_tells_the_readings_it_chose_by(steward: World) -> None:
    await steward.add_node("alpha", 2)
    await steward.known("alpha", 2)

    granted = await steward.granted(await steward.request())

    [device] = granted.devices
    assert (device.memory_free_mb, device.utilization_percent) == (device.memory_total_mb, 0.0)
    assert device.score == 1.0


async def test_a_lost_gpu_is_out_of_the_choice_at_once(steward: World) -> None:
    node = await steward.add_node("alpha", 1)
    await steward.known("alpha", 1)
    change = HealthChanged(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=7,
        node_id="alpha",
        boot_id=node.boot_id,
        change=HealthKind.GPU_LOST,
        device_uuid=node.gpus[0].uuid,
        detail="fell off the bus",
    )

    await steward.bus.publish_event(change)
    await _health(steward, node.gpus[0].uuid, HealthState.LOST)

    view = await steward.waiting(await steward.request(), ReasonCode.UNHEALTHY)
    assert "fell off the bus" in view.reasons[0].message


async def test_epochs_exceed_all_seen_by_an_executor(steward: World, postgres_dsn: str) -> None:
    await steward.add_node("alpha", 1)
    report = ExecutorReported(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=1,
        executor_id="alpha",
        boot_id=new_id(),
        runtimes=(),
        benchmark_tools=(),
        largest_epoch=41,
    )
    await steward.bus.publish_event(report)
    async with ledger(postgres_dsn) as connection:

        async def is_raised() -> bool:
            return bool(await connection.fetchval("SELECT value = 41 FROM epoch"))

        await eventually(is_raised, what="the epoch to be raised")

    granted = await steward.granted(await steward.request())

    assert granted.epoch == 42


async def _health(steward: World, uuid: str, health: HealthState) -> None:
    async def is_so() -> bool:
        seen = await steward.bus.query(GetAllocationMap(), AllocationMap)
        return any(d.uuid == uuid and d.health is health for n in seen.nodes for d in n.devices)

    await eventually(is_so, what=f"{uuid} to be {health}")


async def test_only_namespace_node_or_platform_may_change(
    steward: World,
) -> None:
    await steward.add_node("alpha", 1)
    granted = await steward.granted(await steward.request())
    about: dict[str, Any] = {"reservation_id": granted.reservation_id, "epoch": granted.epoch}

    for speaker in ("another", node_speaker("beta")):
        for command in (
            RenewReservation(command_id=new_id(), speaker=speaker, **about),
            ReleaseReservation(command_id=new_id(), speaker=speaker, **about),
            CancelReservation(
                command_id=new_id(), speaker=speaker, reservation_id=granted.reservation_id
            ),
        ):
            reply = refused(await steward.bus.request(command))
            assert (reply.code, reply.path) == (ErrorCode.FORBIDDEN, "$.speaker")

    for speaker in (granted.namespace, node_speaker("alpha"), PLATFORM):
        accepted(
            await steward.bus.request(
                RenewReservation(command_id=new_id(), speaker=speaker, **about)
            )
        )


async def test_command_on_foreign_subject_is_refused(steward: World) -> None:
    command = a_request(namespace="theirs")
    own = pattern_for(RequestReservation, speaker="ours")

    raw = await steward.bus.nats.request(own, encode(command), timeout=30)

    reply = msgspec.msgpack.decode(raw.data, type=Refused)
    assert reply.code is ErrorCode.BAD_REQUEST
    assert subject_for(command) in reply.message
