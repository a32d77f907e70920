"""Who changed what over NATS: proved by a server with users, told to the gateway's audit log."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from schemas.base import sender_subject, subject_for
from schemas.errors import Accepted
from schemas.scheduler.reservations import CancelReservation, RequestReservation
from schemas.scheduler.views import GetReservation, ReservationView
from services.gateway.app import create_service as create_gateway
from services.gateway.settings import GatewaySettings
from services.scheduler.app import create_service as create_scheduler
from services.scheduler.ledger.leader_election import Leadership
from services.scheduler.settings import SchedulerSettings
from shared.ids import new_id
from shared.local_platform.embedded import EmbeddedNats
from shared.messaging.bus import Bus
from shared.messaging.codec import encode
from shared.testing import eventually

ANN, BOB, ADMIN = "submitter_red_ann", "submitter_red_bob", "admin_root"


@dataclass
class Platform:
    """A scheduler and a gateway on a server with users."""

    server: EmbeddedNats
    url: str

    @asynccontextmanager
    async def bus_of(self, user: str) -> AsyncIterator[Bus]:
        bus = Bus("test", self.server.url, str(self.server.users.path_of(user)))
        await bus.open()
        try:
            yield bus
        finally:
            await bus.close()

    async def audit(self, count: int) -> list[dict[str, Any]]:
        """Return what came over NATS, oldest first, once there are so many."""
        found: list[dict[str, Any]] = []

        async def are_there() -> bool:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.url}/api/v1/audit") as response,
            ):
                entries = (await response.json())["entries"]
            found[:] = [each for each in entries[::-1] if each["method"] == "NATS"]
            return len(found) >= count

        await eventually(are_there, what=f"{count} entries of the audit log")
        return found


@pytest.fixture
async def platform(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with AsyncExitStack() as stack:
        users = [ANN, BOB, ADMIN]
        server = await stack.enter_async_context(EmbeddedNats(tmp_path / "nats", users=users))

        def common(service: str) -> dict[str, Any]:
            credentials = str(server.users.path_of(service))
            return {
                "nats_url": server.url,
                "nats_credentials": credentials,
                "postgres_dsn": postgres_dsn,
            }

        # It decides nothing, so that requests stay queued.
        scheduler = create_scheduler(
            SchedulerSettings(**common("scheduler")),
            make_leadership=partial(Leadership, is_retired=True),
        )
        await stack.enter_async_context(scheduler.running())
        gateway = create_gateway(GatewaySettings(port=0, **common("gateway")))
        await stack.enter_async_context(gateway.running())
        yield Platform(server, f"http://127.0.0.1:{gateway.http.port}")


def a_request(**changes: Any) -> RequestReservation:
    request = RequestReservation(
        command_id=new_id(), reservation_id=new_id(), namespace="red", holder="training"
    )
    return replace(request, **changes)


async def requester_of(bus: Bus, command: RequestReservation) -> str:
    query = GetReservation(reservation_id=command.reservation_id)
    return (await bus.query(query, ReservationView)).requester


async def test_requester_is_the_credentials_user(
    platform: Platform,
) -> None:
    own, plain, claimed = (a_request(requester="bob") for _ in range(3))
    async with platform.bus_of(ANN) as ann, platform.bus_of(ADMIN) as admin:
        assert isinstance(await ann.request(own), Accepted)
        await ann.nats.request(subject_for(plain), encode(plain), timeout=30)
        assert isinstance(await admin.request(claimed), Accepted)
        found = [await requester_of(admin, each) for each in (own, plain, claimed)]

    assert found == ["ann", "", "bob"]


async def test_nobody_sends_under_the_name_of_another(platform: Platform) -> None:
    violations: list[str] = []

    async def note(error: Exception) -> None:
        violations.append(str(error))

    command = a_request(sender=BOB)
    subject = subject_for(command)
    login = to_builtins(platform.server.users.read(ANN))
    client = await nats.connect(platform.server.url, **login, error_cb=note)
    for name in (BOB, "gateway"):
        await client.publish(sender_subject(subject_for(a_request()), name), encode(command))
    await client.flush()
    await client.flush()
    await client.close()

    assert subject == sender_subject("gpusteward.cmd.scheduler.request_reservation.red", BOB)
    assert [f".as.{name}" in each for name, each in zip((BOB, "gateway"), violations, strict=True)]


async def test_audit_log_has_changes_over_nats(platform: Platform) -> None:
    command, plain = a_request(), a_request(holder="unsigned")
    foreign = CancelReservation(
        command_id=new_id(), reservation_id=command.reservation_id, speaker="red", reason="over"
    )
    async with platform.bus_of(ANN) as ann, platform.bus_of("gateway") as gateway:
        await ann.request(command)
        await ann.request(command)
        await ann.request(foreign)
        await ann.nats.request(subject_for(plain), encode(plain), timeout=30)
        await gateway.request(a_request(holder="by the gateway, which has its own entry"))
        entries = await platform.audit(3)

    of = f"/{command.reservation_id}"
    assert [(each["caller"], each["proved"], each["path"]) for each in entries] == [
        (ANN, True, f"scheduler.request_reservation{of}"),
        (ANN, True, f"scheduler.cancel_reservation{of}"),
        ("somebody of red", False, f"scheduler.request_reservation/{plain.reservation_id}"),
    ]
    made, cancelled, _ = entries
    assert (made["before"], made["after"]["holder"]) == (None, "training")
    assert (made["after"]["requester"], made["status"]) == ("ann", 200)
    assert (cancelled["before"]["state"], cancelled["after"]["state"]) == ("queued", "cancelled")
    assert cancelled["after"]["reason"] == "over"


async def test_audit_log_has_refused_changes_over_nats(platform: Platform) -> None:
    command = CancelReservation(command_id=new_id(), reservation_id=new_id(), speaker="red")
    async with platform.bus_of(ANN) as ann:
        await ann.request(command)
        [entry] = await platform.audit(1)

    assert (entry["status"], entry["before"], entry["after"]) == (404, None, None)
