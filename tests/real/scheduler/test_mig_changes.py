"""MIG instances made for requests, by a real agent on a simulated GPU and the real scheduler."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from nats.aio.msg import Msg

from schemas.base import pattern_for
from schemas.errors import Accepted
from schemas.gpus.gpu_request import GpuRequest
from schemas.gpus.mig import ChangeMig, MigInstance, MigLayout
from schemas.scheduler.devices import Uncordon
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import ReservationGranted, ReservationState
from schemas.scheduler.views import AllocationMap, GetAllocationMap
from services.telemetry.app import create_service
from services.telemetry.domain.mig_profiles import usual_options
from services.telemetry.settings import TelemetrySettings
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.worlds.scheduler import FakeGpu, World, accepted

NODE = "alpha"
GPU = "GPU-51a7ed00-0000-4000-8000-000000000900"
FLEET = f"""
[[devices]]
mother_uuid = "{GPU}"
model_name = "Simulated A100"
memory_size = "80G"
mig_enabled = true
"""


@asynccontextmanager
async def agent(nats_url: str, directory: Path, **values: Any) -> AsyncIterator[None]:
    fleet = directory / "fleet.toml"
    fleet.write_text(FLEET)
    settings = TelemetrySettings(
        nats_url=nats_url,
        node_id=NODE,
        data_dir=str(directory / "data"),
        source="simulated",
        fleet=str(fleet),
        interval_seconds=0.2,
        inventory_seconds=1.0,
        metrics=False,
        **{"mig_instances": True, **values},
    )
    async with create_service(settings).running():
        yield


async def profiles(steward: World) -> list[str]:
    """Of the instances that there are."""
    seen = await steward.bus.query(GetAllocationMap(), AllocationMap)
    devices = [device for node in seen.nodes for device in node.devices]
    return sorted(device.mig_profile for device in devices if device.mig_profile is not None)


async def granted(steward: World, reservation_id: UUID) -> ReservationGranted:
    return await steward.event(ReservationGranted, reservation_id, within_seconds=30)


def of(profile: str, **values: Any) -> GpuRequest:
    return GpuRequest(mig_profile=profile, **values)


async def test_two_profiles_divide_one_gpu_in_turn(
    steward: World, nats_url: str, tmp_path: Path
) -> None:
    async with agent(nats_url, tmp_path):
        await steward.known(NODE, 1)
        half = await granted(steward, await steward.request(of("3g.40gb")))
        tenth = await granted(steward, await steward.request(of("1g.10gb")))
        together = await profiles(steward)
        whole = await steward.request(of("7g.80gb"))
        waiting = await steward.waiting(whole, ReasonCode.MIG_NOT_MADE)
        accepted(await steward.release(half))
        accepted(await steward.release(tenth))
        all_of_it = await granted(steward, whole)
        at_last = await profiles(steward)
        never = await steward.request(of("3g.41gb"))

        async def is_rejected() -> bool:
            return (await steward.view(never)).state is ReservationState.REJECTED

        await eventually(is_rejected, what="a rejection: no GPU has such a profile")

    assert [d.mig_profile for d in (*half.devices, *tenth.devices)] == ["3g.40gb", "1g.10gb"]
    assert together == ["1g.10gb", "3g.40gb"]
    assert any("its agent makes one once it has room" in r.message for r in waiting.reasons)
    assert [d.mig_profile for d in all_of_it.devices] == ["7g.80gb"]
    assert at_last == ["7g.80gb"]


async def test_profile_without_mig_agent_is_rejected(
    steward: World, nats_url: str, tmp_path: Path
) -> None:
    async with agent(nats_url, tmp_path, mig_instances=False):
        await steward.known(NODE, 1)
        never = await steward.request(of("3g.40gb"))

        async def is_rejected() -> bool:
            return (await steward.view(never)).state is ReservationState.REJECTED

        await eventually(is_rejected, what="a rejection")
        assert await profiles(steward) == []


def divided(*there: str, change: int = 0, refusal: str = "") -> list[FakeGpu]:
    """A GPU and the instances that its agent made, each at slice 6."""
    layout = MigLayout(
        options=usual_options(81_920),
        instances=tuple(
            MigInstance(
                profile=each, start=6, size=1, device_uuids=(f"MIG-{each}",), made_by_agent=True
            )
            for each in there
        ),
        change=change,
        refusal=refusal,
    )
    instances = [
        FakeGpu(
            uuid=f"MIG-{each}",
            index=6,
            memory_total_mb=9_728,
            processes=(),
            parent_uuid=GPU,
            mig_profile=each,
        )
        for each in there
    ]
    parent = FakeGpu(
        uuid=GPU, index=0, mig_enabled=True, utilization_percent=None, mig_layout=layout
    )
    return [parent, *instances]


async def commands(steward: World) -> list[ChangeMig]:
    """What an agent is asked for, which accepts it, and says no more."""
    heard: list[ChangeMig] = []

    async def answer(raw: Msg) -> None:
        command = msgspec.msgpack.decode(raw.data, type=ChangeMig)
        heard.append(command)
        await raw.respond(encode(Accepted(command_id=command.command_id)))

    await steward.bus.nats.subscribe(pattern_for(ChangeMig, NODE), cb=answer)
    await steward.bus.nats.flush()
    return heard


@pytest.mark.parametrize(
    "is_refused", [True, pytest.param(False, marks=pytest.mark.long)], ids=["refused", "done"]
)
async def test_removed_instance_is_granted_to_nobody(steward: World, *, is_refused: bool) -> None:
    heard = await commands(steward)
    node = await steward.add_node(NODE, divided("1g.10gb"))
    await steward.known(NODE, 2)
    large = await steward.request(of("7g.80gb"))
    await eventually(lambda: len(heard) == 1, within_seconds=30, what="a command")
    await steward.bus.request(
        Uncordon(command_id=new_id(), node_id=NODE, device_uuid="MIG-1g.10gb")
    )
    small = await steward.request(of("1g.10gb"))
    view = await steward.waiting(small, ReasonCode.CORDONED)

    [command] = heard
    node.gpus = divided("1g.10gb", change=1, refusal="in use") if is_refused else divided(change=1)
    await node.report_inventory()

    assert (command.number, command.start, command.remove_starts) == (1, 0, (6,))
    assert any("its slices are for a 7g.80gb" in reason.message for reason in view.reasons)
    if is_refused:
        await granted(steward, small)
        waiting = await steward.waiting(large, ReasonCode.MIG_NOT_MADE)
        assert any("refused: in use" in reason.message for reason in waiting.reasons)
    else:
        await steward.known(NODE, 1)
        await eventually(lambda: len(heard) == 2, within_seconds=30, what="another command")
        assert (heard[1].number, heard[1].remove_starts) == (2, ())
