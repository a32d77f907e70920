"""Power limits on a made-up driver: what is kept on disk, refused, and taken back."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from schemas.errors import ErrorCode
from schemas.telemetry.readings import HealthKind, SetPowerLimit
from services.telemetry.idempotency import AnsweredCommands
from services.telemetry.power.journal import PowerJournal
from services.telemetry.power.limits import PowerLimits
from shared.errors import RefusedError
from shared.ids import new_id
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.worlds.telemetry_node import DEFAULT_W, FakeSource, Node


class Powered:
    """A node with power limits, whose reservations the test ends."""

    def __init__(self, source: FakeSource, path: Path) -> None:
        self.source = source
        self.node = Node(source)
        self.ended: set[UUID] = set()
        self.path = path
        self.power = PowerLimits(
            self.node.agent,
            self.node.publisher,
            PowerJournal(path),
            require_holder=self._hold,
            has_ended=self.ended.__contains__,
        )

    async def cap(
        self, watts: float | None, reservation_id: UUID | None = None, mhz: int | None = None
    ) -> None:
        await self.power.apply(make_limit(watts, reservation_id, mhz))

    async def kinds(self) -> list[HealthKind]:
        return [change.change for change in await self.node.changes()]

    async def _hold(self, reservation_id: UUID, device_uuid: str) -> None:
        """Everybody holds everything."""


def make_limit(
    watts: float | None, reservation_id: UUID | None = None, mhz: int | None = None
) -> SetPowerLimit:
    return SetPowerLimit(
        command_id=new_id(),
        node_id="node-a",
        device_uuid="GPU-0",
        power_limit_w=watts,
        reservation_id=reservation_id,
        sm_clock_mhz=mhz,
    )


@pytest.fixture
async def powered(tmp_path: Path) -> Powered:
    found = Powered(FakeSource(), tmp_path / "telemetry" / "power.json")
    await found.node.devices.read()
    return found


async def test_limit_is_on_disk_before_the_driver_has_it(powered: Powered) -> None:
    seen: list[str] = []

    async def look(_uuid: str, _watts: float | None) -> None:
        seen.append(await asyncio.to_thread(powered.path.read_text))

    powered.source.on_limit = look
    await powered.cap(300.0)

    assert '"watts":300.0' in seen[0]
    assert f'"original_w":{DEFAULT_W}' in powered.path.read_text()


async def test_former_limit_returns_after_the_last(
    powered: Powered,
) -> None:
    powered.source.limits["GPU-0"] = 650.0
    await powered.cap(300.0)
    await powered.cap(400.0)
    await powered.cap(None)
    await powered.cap(None)

    assert powered.source.limits["GPU-0"] == 650.0
    assert powered.path.read_text() == "[]"
    assert await powered.kinds() == [
        HealthKind.POWER_LIMIT_CHANGED,
        HealthKind.POWER_LIMIT_CHANGED,
        HealthKind.POWER_LIMIT_RESTORED,
    ]


async def test_clock_lock_ends_with_its_reservation(
    powered: Powered,
) -> None:
    reservation_id = new_id()
    await powered.cap(300.0)
    await powered.cap(None, reservation_id, mhz=1200)

    assert (powered.source.limits["GPU-0"], powered.source.clocks["GPU-0"]) == (300.0, 1200)
    assert '"sm_clock_mhz":1200' in powered.path.read_text()
    loop = asyncio.create_task(powered.power.run())
    powered.power.reservation_ended(reservation_id)
    await eventually(lambda: powered.source.clocks["GPU-0"] is None, what="its own clock")
    await cancel_and_wait(loop)

    assert powered.source.limits["GPU-0"] == 300.0
    locked, unlocked = (await powered.node.changes())[1:]
    assert (locked.change, locked.sm_clock_mhz) == (HealthKind.SM_CLOCK_LOCKED, 1200)
    assert (unlocked.change, unlocked.power_limit_w) == (HealthKind.SM_CLOCK_RESTORED, None)


async def test_limit_and_clock_are_set_together(powered: Powered) -> None:
    await powered.cap(300.0, mhz=1200)
    with pytest.raises(RefusedError, match="limited GPU-0 to 1200 MHz"):
        await powered.cap(None, new_id(), mhz=900)
    assert powered.source.clocks == {"GPU-0": 1200}
    await powered.cap(None)

    assert (powered.source.limits["GPU-0"], powered.source.clocks["GPU-0"]) == (DEFAULT_W, None)
    assert powered.path.read_text() == "[]"


async def test_a_stopping_agent_takes_limit_and_clock_back(powered: Powered) -> None:
    await powered.cap(300.0, new_id(), mhz=1200)
    await powered.power.stop()

    assert (powered.source.limits["GPU-0"], powered.source.clocks["GPU-0"]) == (DEFAULT_W, None)


async def test_a_journal_of_an_older_agent_is_read(tmp_path: Path) -> None:
    path = tmp_path / "power.json"
    path.write_text(
        '[{"device_uuid":"GPU-0","watts":300.0,"original_w":650.0,"reservation_id":null}]'
    )
    powered = Powered(FakeSource(limits={"GPU-0": 300.0}), path)
    await powered.node.devices.read()
    await powered.power.stop()

    assert powered.source.limits["GPU-0"] == 650.0


async def test_without_privilege_nothing_is_kept(powered: Powered) -> None:
    async def forbid(_uuid: str, _watts: float | None) -> None:
        raise RefusedError(ErrorCode.FORBIDDEN, "setting power limits takes root")

    powered.source.on_limit = forbid
    with pytest.raises(RefusedError, match="takes root"):
        await powered.cap(300.0)

    assert powered.path.read_text() == "[]"
    assert await powered.kinds() == []


async def test_without_journal_driver_is_untouched(tmp_path: Path) -> None:
    (tmp_path / "telemetry").write_text("a file where a directory belongs")
    powered = Powered(FakeSource(), tmp_path / "telemetry" / "power.json")
    await powered.node.devices.read()

    with pytest.raises(RefusedError, match="journal") as refused:
        await powered.cap(300.0)

    assert refused.value.code is ErrorCode.INTERNAL
    assert powered.source.limits == {}


async def test_stubborn_driver_is_asked_until_restored(
    powered: Powered,
) -> None:
    reservation_id = new_id()
    await powered.cap(300.0, reservation_id)
    failures = 1

    async def fail_once(_uuid: str, _watts: float | None) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise RefusedError(ErrorCode.FORBIDDEN, "not now")

    powered.source.on_limit = fail_once
    loop = asyncio.create_task(powered.power.run())
    powered.power.reservation_ended(reservation_id)
    await eventually(lambda: powered.source.limits["GPU-0"] == DEFAULT_W, what="the limit back")
    loop.cancel()

    assert failures < 0


async def test_reservation_ending_early_keeps_no_limit(
    powered: Powered,
) -> None:
    reservation_id = new_id()

    async def end(_uuid: str, _watts: float | None) -> None:
        powered.ended.add(reservation_id)

    powered.source.on_limit = end
    loop = asyncio.create_task(powered.power.run())
    await powered.cap(300.0, reservation_id)
    await eventually(lambda: powered.source.limits["GPU-0"] == DEFAULT_W, what="the limit back")
    loop.cancel()


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(None, 300.0, id="held: kept"),
        pytest.param(ErrorCode.CONFLICT, DEFAULT_W, id="over: restored"),
    ],
)
async def test_limit_of_killed_agent_stays_while_held(
    powered: Powered, answer: ErrorCode | None, want: float
) -> None:
    await powered.cap(300.0, new_id(), mhz=1200)
    source = FakeSource()  # as after a reboot of the driver
    again = Powered(source, powered.path)
    await again.node.devices.read()
    silent = [RefusedError(ErrorCode.UNAVAILABLE, "the scheduler does not answer")]

    async def hold(_reservation: UUID, _device: str) -> None:
        if silent:
            raise silent.pop()
        if answer is not None:
            raise RefusedError(answer, "it is over")

    power = PowerLimits(
        again.node.agent,
        again.node.publisher,
        PowerJournal(again.path),
        require_holder=hold,
        has_ended=again.ended.__contains__,
    )
    running = asyncio.create_task(power.run())
    try:
        await eventually(
            lambda: (
                source.limits.get("GPU-0") == want
                and source.clocks.get("GPU-0", 0) == (1200 if answer is None else None)
                and ('"watts":300.0' in powered.path.read_text()) is (answer is None)
            ),
            what="its limit, and what the journal says of it",
        )
    finally:
        await cancel_and_wait(running)


async def test_a_journal_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "power.json"
    path.write_text("{")

    powered = Powered(FakeSource(), path)
    await powered.node.devices.read()
    await powered.cap(300.0)

    assert powered.source.limits["GPU-0"] == 300.0


async def test_command_id_is_carried_out_once() -> None:
    answered, command, done = AnsweredCommands(), make_limit(300.0), 0

    async def apply() -> None:
        nonlocal done
        done += 1
        if done == 1:
            raise RefusedError(ErrorCode.UNAVAILABLE, "not now")

    for_now = await answered.once(command, apply)
    first, again = [await answered.once(command, apply) for _ in range(2)]
    other = SetPowerLimit(
        command_id=command.command_id, node_id="node-a", device_uuid="GPU-1", power_limit_w=None
    )
    reused = await answered.once(other, apply)

    assert [getattr(reply, "code", None) for reply in (for_now, first, again, reused)] == [
        ErrorCode.UNAVAILABLE,
        None,
        None,
        ErrorCode.COMMAND_ID_REUSED,
    ]
    assert done == 2
