"""The power limit of an attempt's GPUs is set before its engine starts, or the attempt fails."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.base import Command
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import FailureKind, StartExperiment
from schemas.telemetry.readings import SetPowerLimit
from services.executor.attempts.power_limit import limit_power
from services.executor.domain.verdict import AttemptFailed
from services.orchestrator.domain.lifecycle.waiting import start_of
from shared.errors import UnavailableError
from tests.support.worlds.orchestrator_records import (
    DEVICE,
    RESERVATION_ID,
    make_experiment,
    make_granted,
    make_task,
)

ACCEPTED = Accepted(command_id=RESERVATION_ID)
REFUSED = Refused(command_id=RESERVATION_ID, code=ErrorCode.FORBIDDEN, message="needs root")


class FakeBus:
    """Answers for the agent; hardware is what is missing here."""

    def __init__(self, answer: Reply | Exception) -> None:
        self.answer = answer
        self.sent: list[SetPowerLimit] = []

    async def request(self, command: Command, *, timeout_seconds: float) -> Reply:
        assert timeout_seconds > 0
        assert isinstance(command, SetPowerLimit)
        self.sent.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def start(watts: float | None, mhz: int | None = None) -> StartExperiment:
    experiment = make_experiment("starting", power_limit_w=watts, sm_clock_mhz=mhz)  # type: ignore[arg-type]
    elsewhere = replace(DEVICE, node_id="n2", uuid="GPU-9")
    attempt = make_granted(devices=(DEVICE, elsewhere))
    return start_of(make_task(), experiment, attempt)[0]


async def limited(watts: float | None, answer: Any, mhz: int | None = None) -> FakeBus:
    bus = FakeBus(answer)
    await limit_power(start(watts, mhz), bus)  # type: ignore[arg-type]
    return bus


async def test_own_devices_are_limited_under_reservation() -> None:
    bus = await limited(350.0, ACCEPTED)

    assert [(each.node_id, each.device_uuid, each.power_limit_w) for each in bus.sent] == [
        ("n1", "GPU-0", 350.0)
    ]
    assert bus.sent[0].reservation_id == RESERVATION_ID
    assert bus.sent[0].command_id == (await limited(350.0, ACCEPTED)).sent[0].command_id


async def test_nothing_is_set_without_a_limit() -> None:
    assert (await limited(None, ACCEPTED)).sent == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            Refused(command_id=RESERVATION_ID, code=ErrorCode.FORBIDDEN, message="needs root"),
            "needs root",
        ),
        (UnavailableError("no answer within 10 s"), "does not answer"),
    ],
)
async def test_refused_power_limit_fails_attempt(answer: Any, says: str) -> None:
    with pytest.raises(AttemptFailed) as failed:
        await limited(350.0, answer)

    assert failed.value.failure.kind is FailureKind.POWER_LIMIT_REFUSED
    assert "GPU 0 of n1 limited to 350 W" in failed.value.failure.message
    assert says in failed.value.failure.message


async def test_clock_is_locked_by_its_own_command() -> None:
    limit, lock = (await limited(350.0, ACCEPTED, 1200)).sent

    assert (limit.power_limit_w, limit.sm_clock_mhz) == (350.0, None)
    assert (lock.power_limit_w, lock.sm_clock_mhz) == (None, 1200)
    assert (lock.device_uuid, lock.reservation_id) == ("GPU-0", RESERVATION_ID)
    assert lock.command_id != limit.command_id


async def test_refused_clock_fails_attempt() -> None:
    with pytest.raises(AttemptFailed) as failed:
        await limited(None, REFUSED, 1200)

    assert failed.value.failure.kind is FailureKind.SM_CLOCK_REFUSED
    assert failed.value.failure.message == "expected GPU 0 of n1 locked to 1200 MHz: needs root"
