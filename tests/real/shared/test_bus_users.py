"""What a nats-server lets each user do, and what one stolen file is worth."""

from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from msgspec import to_builtins
from nats.aio.client import Client

from schemas.base import PLATFORM, Message, node_speaker, pattern_for
from schemas.catalog import MESSAGES
from schemas.executor.attempts import AttemptFinished, ExecutorReported, FenceReservation
from schemas.orchestrator.experiments import CancelTask, SubmitTask
from schemas.scheduler.devices import Cordon, Drain, Uncordon
from schemas.scheduler.nodes import RemoveNode
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
)
from schemas.telemetry.readings import GpuSampled, InventoryReported
from shared.local_platform.bus_users import BusUsers, NoSuchUser
from shared.local_platform.embedded import EmbeddedNats
from shared.messaging.bus import Bus
from shared.messaging.permissions import permissions_of
from shared.messaging.user_names import SERVICES, bus_user
from shared.testing import eventually
from tests.support.idle_clock import Clock
from tests.unit.shared.messaging.test_bus_permissions import USERS, may

NODE = "node_a"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    users = [name for role, name in USERS.items() if role not in SERVICES]
    async with EmbeddedNats(tmp_path / "nats", users=users) as server:
        yield server


class Violations(list[str]):
    """What the server refused a client, in its words."""

    async def note(self, error: Exception) -> None:
        self.append(str(error))

    def refused(self, verb: str, subject: str) -> bool:
        needle = f'for {verb} to "{subject.lower()}"'
        return any(needle in each for each in self)


async def connect(server: EmbeddedNats, name: str, violations: Violations) -> Client:
    return await nats.connect(
        server.url, **to_builtins(server.users.read(name)), error_cb=violations.note
    )


async def judged(client: Client) -> None:
    """Wait until the server has judged everything sent so far."""
    await client.flush()
    await client.flush()  # the first one overtakes what is still buffered


async def test_a_server_holds_every_user_to_the_table(server: EmbeddedNats) -> None:
    for name in USERS.values():
        await assert_held_to_the_table(server, name)


async def assert_held_to_the_table(server: EmbeddedNats, name: str) -> None:
    allowed, violations = permissions_of(bus_user(name)), Violations()
    client = await connect(server, name, violations)
    subjects = {
        pattern_for(message, key, speaker=speaker)
        for message in MESSAGES
        for key in ("a", "b")
        for speaker in ("a", "b", "team", PLATFORM, NODE, node_speaker("b"))
    } | {">", "gpusteward.>", "_INBOX.>", "_INBOX.another.x", f"_INBOX.{name}.x"}
    exact = [each for each in subjects if not each.endswith(">")]
    exact += ["$JS.API.STREAM.DELETE.GPUSTEWARD_EVENTS", "$JS.API.STREAM.PURGE.GPUSTEWARD_EVENTS"]

    for subject in exact:
        await client.publish(subject, b"")
    for subject in subjects:
        await client.subscribe(subject)
    await judged(client)

    for subject in exact:
        refused = violations.refused("publish", subject)
        assert refused is not may(allowed.publish, subject), (name, subject)
    for subject in subjects:
        refused = violations.refused("subscription", subject)
        assert refused is not may(allowed.subscribe, subject), (name, subject)
    await client.close()


async def test_credentials_file_serves_its_node_alone(
    server: EmbeddedNats,
) -> None:
    violations = Violations()
    thief = await connect(server, NODE, violations)
    attacks: list[tuple[type[Message], str, str]] = [
        (RequestReservation, "", "theirs"),
        (SubmitTask, "", "theirs"),
        (CancelTask, "", PLATFORM),
        (CancelReservation, "", PLATFORM),
        (CancelReservation, "", NODE),
        (RenewReservation, "", PLATFORM),
        (ReleaseReservation, "", node_speaker("b")),
        (Cordon, "", ""),
        (Uncordon, "", ""),
        (Drain, "", ""),
        (RemoveNode, "", ""),
        (FenceReservation, "b", ""),
        (GpuSampled, "b", ""),
        (InventoryReported, "made-up", ""),
        (ExecutorReported, "b", ""),
        (AttemptFinished, "x", "b"),
    ]

    for message, key, speaker in attacks:
        subject = pattern_for(message, key or None, speaker=speaker or None)
        await thief.publish(subject, b"")
        await judged(thief)
        assert violations.refused("publish", subject), subject
    await thief.subscribe(">")
    await thief.publish("$JS.API.STREAM.DELETE.GPUSTEWARD_EVENTS", b"")
    await judged(thief)
    assert violations.refused("subscription", ">")
    assert violations.refused("publish", "$JS.API.STREAM.DELETE.GPUSTEWARD_EVENTS")

    violations.clear()
    await thief.publish(pattern_for(GpuSampled, "a"), b"")
    await thief.publish(pattern_for(RenewReservation, speaker=NODE), b"")
    await judged(thief)
    assert violations == []
    await thief.close()


async def test_revoked_user_is_cut_off_alone(server: EmbeddedNats, idle_clock: Clock) -> None:
    revoked = await connect(server, NODE, Violations())
    other = await connect(server, "viewer_eve", Violations())

    revoked_at = idle_clock()
    server.users.revoke(NODE)
    assert server.reload()

    await eventually(lambda: not revoked.is_connected)
    assert idle_clock() - revoked_at < 5
    await other.flush()
    assert other.stats["reconnects"] == 0
    with pytest.raises(NoSuchUser):
        server.users.revoke(NODE)
    await revoked.close()
    await other.close()


async def test_service_continues_with_a_new_password(
    server: EmbeddedNats,
) -> None:
    bus = Bus("executor", server.url, str(server.users.path_of(NODE)))
    await bus.open()
    before = server.users.read(NODE)

    server.users.rotate(NODE)
    assert server.reload()

    await eventually(lambda: bus.nats.stats["reconnects"] == 1)
    assert bus.is_connected
    assert server.users.read(NODE).password != before.password
    await bus.close()


async def test_users_last_as_long_as_their_directory(tmp_path: Path) -> None:
    users = BusUsers(tmp_path / "users")
    users.create(["node_a"])
    made = users.read("node_a")

    users.create(["node_a", "node_b"])

    assert users.read("node_a") == made
    assert '"node_b"' in users.configuration_path.read_text()
    users.revoke("node_b")
    assert '"node_b"' not in users.configuration_path.read_text()
    with pytest.raises(ValueError, match="name of a user"):
        users.create(["somebody"])
    assert not users.path_of("somebody").exists()
