"""One trace through commands, the outbox and what goes on without a message."""

from collections.abc import Iterator
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from schemas.base import subject_for
from schemas.scheduler.reservations import CancelReservation
from shared import tracing
from shared.ids import new_id
from shared.postgres.commands import stage_with_commands
from shared.postgres.database import Database
from shared.postgres.outbox import stage
from shared.testing import eventually
from tests.real.shared.test_service_core import (
    MIGRATIONS,
    Heard,
    cancel,
    listener_service,
    make_released,
    owner_service,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
GIVEN = [(b"traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode())]


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.start_with("test", SimpleSpanProcessor(exporter))
    yield exporter
    tracing.stop()


def names_in(exporter: InMemorySpanExporter, trace: str) -> set[str]:
    return {
        span.name
        for span in exporter.get_finished_spans()
        if f"{span.context.trace_id:032x}" == trace
    }


async def test_trace_runs_from_request_to_consumer(
    nats_url: str, postgres_dsn: str, spans: InMemorySpanExporter
) -> None:
    heard = Heard()
    async with (
        listener_service(nats_url, postgres_dsn, heard),
        owner_service(nats_url, postgres_dsn) as owner,
    ):
        with tracing.serving("HTTP POST", GIVEN):
            await owner.bus.request(cancel())

        await eventually(
            lambda: "scheduler.reservation_released" in names_in(spans, TRACE),
            what="the event's span",
        )

    assert names_in(spans, TRACE) == {
        "HTTP POST",
        "scheduler.cancel_reservation",
        "scheduler.reservation_released",
    }


async def test_trace_continues_in_another_process(
    postgres_dsn: str, spans: InMemorySpanExporter
) -> None:
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    first, other = make_released(), make_released()
    await database.open()
    async with database.transaction() as connection:
        with tracing.serving("HTTP POST", GIVEN):
            await stage(connection, first)
    tracing.start_with("another", SimpleSpanProcessor(spans))

    async with database.transaction() as connection:
        await stage(connection, make_released(first.reservation_id), other)
        rows = await connection.fetch("SELECT subject, traceparent FROM outbox ORDER BY id")
    await database.close()

    of_first = [row["traceparent"] for row in rows if row["subject"] == subject_for(first)]
    assert [found.split("-")[1] for found in of_first] == [TRACE, TRACE]
    assert [row["traceparent"] for row in rows if row["subject"] == subject_for(other)] == [None]


async def test_without_a_collector_no_message_has_a_header(
    nats_url: str, postgres_dsn: str
) -> None:
    command = cancel()
    seen: list[Any] = []
    client = await nats.connect(nats_url)

    async def on_command(raw: Msg) -> None:
        seen.append(raw.headers)

    await client.subscribe(subject_for(command), cb=on_command)
    await client.flush()
    async with owner_service(nats_url, postgres_dsn) as owner:
        await owner.bus.request(command)
    await eventually(lambda: bool(seen), what="the command")
    await client.close()

    assert seen == [None]


@pytest.mark.parametrize("is_traced", [False, True])
async def test_events_and_commands_are_stored_together(
    postgres_dsn: str, request: pytest.FixtureRequest, is_traced: bool
) -> None:
    if is_traced:
        request.getfixturevalue("spans")
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    events = [make_released() for _ in range(3)]
    commands = [
        CancelReservation(command_id=new_id(), reservation_id=event.reservation_id)
        for event in events
    ]
    await database.open()

    with tracing.serving("HTTP POST", GIVEN):
        async with database.transaction() as connection:
            await stage_with_commands(connection, events, commands)
            await stage_with_commands(connection, events, commands)
    async with database.transaction() as connection:
        told = await connection.fetch("SELECT message_id, traceparent FROM outbox ORDER BY id")
        kept = await connection.fetch("SELECT command_id FROM outgoing ORDER BY id")
    await database.close()

    assert [row["message_id"] for row in told] == [event.message_id for event in events]
    assert [row["command_id"] for row in kept] == [command.command_id for command in commands]
    assert {row["traceparent"] is not None for row in told} == {is_traced}


def test_services_of_one_process_are_traced_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = "http://127.0.0.1:9"
    names: list[str] = []

    def start_with(name: str, _: object) -> None:
        names.append(name)
        monkeypatch.setattr(tracing, "_tracing", object())

    monkeypatch.setattr(tracing, "_process_name", "services")
    monkeypatch.setattr(tracing, "start_with", start_with)

    tracing.start("results", nobody)
    tracing.start("gateway", nobody)

    assert names == ["services"]
