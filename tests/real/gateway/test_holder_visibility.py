"""Whom it is told who holds a GPU: one setting for the fleet, the map, reasons and events."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from schemas.base import subject_for
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import (
    AvailabilityView,
    ExplainReservation,
    Explanation,
    GetAllocationMap,
    GetAvailability,
    GetReservation,
    ListReservations,
    ReservationList,
    WhatIf,
)
from services.gateway.domain.access import HoldersVisibleTo
from shared.messaging.codec import encode
from tests.real.gateway.test_tokens import Caller, admins
from tests.support.worlds.gateway import (
    NODE,
    logged,
    make_allocation_map,
    make_queued,
    make_reservation_view,
    make_sample,
    make_task_started,
)

SECRET = "secret-job"  # a holder's name
EVERYBODY: dict[str, Any] = {"holders_visible_to": HoldersVisibleTo.EVERYBODY}


async def viewer_of_b(admin: Caller) -> Caller:
    made = await admin.make(role="viewer", namespaces=["b"])
    return Caller(admin.api, made["secret"])


async def answer_map(admin: Caller) -> None:
    allocation = make_allocation_map()
    (node,) = allocation.nodes
    held, free = node.devices
    held = replace(held, reservation_id=uuid4(), namespace="a", holder=SECRET)
    node = replace(node, devices=(held, free))
    await admin.api.owners.answer(GetAllocationMap, replace(allocation, nodes=(node,)))
    await admin.api.owners.publish(make_sample())


async def test_open_visibility_names_holders_in_fleet(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path, **EVERYBODY) as (admin,):
        await answer_map(admin)
        viewer = await viewer_of_b(admin)

        _, fleet = await viewer.get("/api/v1/gpus")
        _, seen = await viewer.get(f"/api/v1/nodes/{NODE}/gpu-alloc-map")

    assert (fleet["gpus"][0]["holder"], fleet["gpus"][0]["namespace"]) == (SECRET, "a")
    assert SECRET in str(seen)


async def test_open_visibility_shows_reservation_events_only(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path, **EVERYBODY) as (admin,):
        viewer = await viewer_of_b(admin)
        _, before = await admin.get("/api/v1/events?limit=1000")
        path = f"events?after={before['cursor']}"
        socket = await admin.api.session.ws_connect(
            f"{admin.api.url}/ws/{path}", headers=viewer.headers
        )
        for event in (
            make_task_started(namespace="a"),
            make_queued(namespace="a", holder=SECRET),
        ):
            await admin.api.owners.client.jetstream().publish(subject_for(event), encode(event))
        admin.api.session.headers.update(admin.headers)
        await logged(admin.api, 2, f"/api/v1/{path}")

        streamed = await socket.receive_json(timeout=60)
        _, listed = await viewer.get(f"/api/v1/{path}")
        await socket.close()

    [only] = listed["events"]
    assert (only["type"], only["event"]["holder"]) == ("scheduler.reservation_queued", SECRET)
    assert streamed["event"] == only["event"]


@pytest.mark.parametrize(
    ("settings", "role", "names_of", "namespace"),
    [
        pytest.param({}, "submitter", ("b", "c"), "b", id="own alone"),
        pytest.param(EVERYBODY, "submitter", None, None, id="everybody"),
        pytest.param({}, "admin", None, None, id="an admin"),
    ],
)
async def test_reasons_name_only_visible_holders(
    nats_url: str,
    postgres_dsn: str,
    tmp_path: Path,
    settings: dict[str, Any],
    role: str,
    names_of: tuple[str, ...] | None,
    namespace: str | None,
) -> None:
    reservation_id = uuid4()
    queued = ReservationState.QUEUED
    async with admins(nats_url, postgres_dsn, tmp_path, **settings) as (admin,):
        owners = admin.api.owners
        view = make_reservation_view(reservation_id, namespace="b")
        await owners.answer(GetReservation, view)
        await owners.answer(ListReservations, ReservationList(reservations=(view,)))
        explained = Explanation(
            reservation_id=reservation_id,
            state=queued,
            queue_position=1,
            queue_length=1,
            reasons=(),
            summary="",
        )
        await owners.answer(ExplainReservation, explained)
        available = AvailabilityView(available=False, impossible=True, message="")
        await owners.answer(GetAvailability, available)
        await owners.answer(WhatIf, available)
        made = await admin.make(role=role, namespaces=["b", "c"])
        caller = Caller(admin.api, made["secret"])
        owners.received.clear()

        answers = [
            await caller.get(f"/api/v1/reservations/{reservation_id}"),
            await caller.get("/api/v1/reservations"),
            await caller.get(f"/api/v1/reservations/{reservation_id}/explain"),
            await caller.post(f"/api/v1/reservations/{reservation_id}/what-if", {}),
            await caller.get("/api/v1/availability"),
        ]
        asked = [each for each in owners.received if hasattr(each, "names_of")]

    assert {status for status, _ in answers} == {200}
    assert {type(each) for each in asked} == {
        GetReservation,
        ListReservations,
        ExplainReservation,
        WhatIf,
        GetAvailability,
    }
    assert {each.names_of for each in asked} == {names_of}
    assert [each.namespace for each in asked if isinstance(each, GetAvailability)] == [namespace]
