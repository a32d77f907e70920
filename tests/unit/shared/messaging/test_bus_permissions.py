"""Every subject against every role: what the table allows, and that no message is forgotten."""

import re
from collections.abc import Iterable

import pytest

from schemas.base import (
    PLATFORM,
    Event,
    Live,
    Message,
    Sample,
    node_speaker,
    pattern_for,
    sender_subject,
    tag_of,
)
from schemas.catalog import MESSAGES
from schemas.executor.running import ListRunning
from schemas.orchestrator.experiments import StartsWaiting
from schemas.telemetry.readings import SetPowerLimit
from shared.messaging.permissions import is_signed, owner_of, permissions_of, rule_of
from shared.messaging.stream_names import NAMES
from shared.messaging.streams import STREAMS
from shared.messaging.user_names import SERVICES, Role, bus_user
from tests.support.tables import for_each

USERS = {
    **{role: str(role) for role in SERVICES},
    Role.NODE: "node_a",
    Role.VIEWER: "viewer_eve",
    Role.SUBMITTER: "submitter_team_sue",
    Role.ADMIN: "admin_ann",
}
every_message = for_each("message", MESSAGES, name=tag_of)
every_role = pytest.mark.parametrize("role", list(Role))


def may(patterns: Iterable[str], subject: str) -> bool:
    """Whether a server that allows these patterns allows the subject."""
    return any(
        re.fullmatch(re.escape(p).replace(r"\*", "[^.]+").replace(">", ".+"), subject)
        for p in patterns
    )


def passes(message: type[Message]) -> bool:
    return issubclass(message, Event | Live | Sample)


@every_message
def test_every_message_has_a_rule_without_owner(message: type[Message]) -> None:
    owner = owner_of(message)

    # Nodes are owners, and ask each other.
    assert owner is Role.NODE or owner not in rule_of(message)


@every_message
@every_role
def test_subject_is_open_to_its_rule_alone(message: type[Message], role: Role) -> None:
    allowed = permissions_of(bus_user(USERS[role]))
    key, speaker = "a", {Role.NODE: "node_a", Role.SUBMITTER: "team"}.get(role, PLATFORM)
    if message.speaker_field == "executor_id":
        speaker = "a"
    subject = pattern_for(message, key, speaker=speaker)
    sends = role is owner_of(message) if passes(message) else role in rule_of(message)
    receives = role in rule_of(message) if passes(message) else role is owner_of(message)

    assert may(allowed.publish, subject) is sends
    assert may(allowed.subscribe, subject) is receives


@every_message
@every_role
def test_sender_subject_is_open_to_its_sender(message: type[Message], role: Role) -> None:
    allowed = permissions_of(bus_user(USERS[role]))
    speaker = {Role.NODE: "node_a", Role.SUBMITTER: "team"}.get(role, PLATFORM)
    subject = pattern_for(message, "a", speaker=speaker)
    sends = is_signed(message) and role in rule_of(message)

    assert may(allowed.publish, sender_subject(subject, USERS[role])) is sends
    for other in {*USERS.values()} - {USERS[role]}:
        assert not may(allowed.publish, sender_subject(subject, other))
    if is_signed(message):
        assert may(allowed.subscribe, sender_subject(subject, "admin_ann")) is (
            role is owner_of(message)
        )


@every_message
def test_a_node_speaks_and_answers_for_itself_alone(message: type[Message]) -> None:
    allowed = permissions_of(bus_user("node_a"))

    if owner_of(message) is Role.NODE and passes(message):
        other = pattern_for(message, "b", speaker="b")
        assert not may(allowed.publish, other)
    elif owner_of(message) is Role.NODE:
        speaker = node_speaker("a") if message.speaker_field else None
        assert not may(allowed.subscribe, pattern_for(message, "b", speaker=speaker or "a"))
    if message.speaker_field:
        for speaker in (PLATFORM, "team", node_speaker("b")):
            assert not may(allowed.publish, pattern_for(message, "x", speaker=speaker))
    assert not may(allowed.publish, pattern_for(ListRunning, "b"))
    assert not may(allowed.publish, pattern_for(SetPowerLimit, "b"))
    assert not may(allowed.subscribe, pattern_for(StartsWaiting, "b"))


@every_message
def test_a_submitter_speaks_for_its_namespace_alone(message: type[Message]) -> None:
    allowed = permissions_of(bus_user("submitter_team_sue"))

    if message.speaker_field:
        for speaker in (PLATFORM, "another", node_speaker("a")):
            assert not may(allowed.publish, pattern_for(message, "a", speaker=speaker))


@every_message
def test_people_receive_every_event(message: type[Message]) -> None:
    people = {Role.VIEWER, Role.SUBMITTER, Role.ADMIN}

    assert people <= rule_of(message) or not passes(message)


@every_role
def test_nobody_may_hear_all_or_delete_streams(role: Role) -> None:
    name = USERS[role]
    allowed = permissions_of(bus_user(name))

    for pattern in (">", "gpusteward.>", "_INBOX.>", "_INBOX.another.>", "$JS.>"):
        assert pattern not in allowed.subscribe
        assert pattern not in allowed.publish
    assert may(allowed.subscribe, f"_INBOX.{name}.x")
    assert not may(allowed.subscribe, "_INBOX.another.x")
    for verb in ("DELETE", "PURGE"):
        assert not may(allowed.publish, f"$JS.API.STREAM.{verb}.GPUSTEWARD_EVENTS")
    updates = may(allowed.publish, "$JS.API.STREAM.UPDATE.GPUSTEWARD_EVENTS")
    assert updates is (role is Role.SCHEDULER)  # their replicas
    creates = may(allowed.publish, "$JS.API.STREAM.CREATE.GPUSTEWARD_EVENTS")
    assert creates is (role in SERVICES)


@pytest.mark.parametrize(
    "name",
    ["", "node_", "node_a.b", "node_a b", "root", "submitter_x", "submitter__x", "scheduler_2"],
)
def test_a_name_that_says_nothing_is_no_user(name: str) -> None:
    with pytest.raises(ValueError, match="name of a user"):
        bus_user(name)


def test_any_node_id_is_taken_for_no_other_role() -> None:
    for node_id in ("a_b", "-", "submitter_x_y", "n" * 128):
        user = bus_user(node_speaker(node_id))
        assert (user.role, user.scope) == (Role.NODE, node_id)


def test_documented_streams_are_declared() -> None:
    assert tuple(stream.name for stream in STREAMS) == NAMES
