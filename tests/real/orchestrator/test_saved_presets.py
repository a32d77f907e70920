"""Presets saved, listed, merged and taken by tasks; over a real nats-server and Postgres."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from schemas.base import Command
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.orchestrator.experiments import SubmitTask
from schemas.orchestrator.presets import (
    DeletePreset,
    ExistingPreset,
    GetPreset,
    ListPresets,
    Preset,
    PresetList,
    PresetView,
    SavePresets,
)
from schemas.orchestrator.views import GetTask, TaskPlan, TaskView, ValidateTask
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from shared.errors import RefusedError
from shared.ids import new_id
from shared.service import Service
from tests.support.worlds.orchestrator import World, task_file


@pytest.fixture
async def service(nats_url: str, postgres_dsn: str, world: World) -> AsyncIterator[Service]:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with create_service(settings).running() as running:
        yield running


def make(name: str, engine: str | None = None, **parameters: Any) -> Preset:
    return msgspec.convert({"name": name, "engine": engine, "parameters": parameters}, Preset)


def saving(*presets: Preset, namespace: str = "default", **more: Any) -> SavePresets:
    return SavePresets(command_id=new_id(), namespace=namespace, presets=presets, **more)


async def code_of(world: World, command: Command) -> ErrorCode | None:
    reply = await world.bus.request(command)
    return reply.code if isinstance(reply, Refused) else None


async def revision_of(world: World, name: str, namespace: str = "default") -> int | None:
    listed = await world.bus.query(ListPresets(namespace=namespace), PresetList)
    if all(each.name != name for each in listed.presets):
        with pytest.raises(RefusedError, match="has no preset"):
            await world.bus.query(GetPreset(namespace=namespace, name=name), PresetView)
        return None
    view = await world.bus.query(GetPreset(namespace=namespace, name=name), PresetView)
    return view.revision


async def facts(service: Service) -> list[tuple[str, str, int]]:
    assert service.database is not None
    rows = await service.database.pool.fetch("SELECT body FROM outbox ORDER BY id")
    read = [msgspec.msgpack.decode(row["body"]) for row in rows]
    return [
        (body["type"].partition("preset_")[2], body["name"], body["revision"])
        for body in read
        if "preset_" in body["type"]
    ]


async def test_preset_revision_grows_with_its_content(world: World, service: Service) -> None:
    first = saving(make("fast", slots=[1]))
    changed = make("fast", slots=[2])

    replies = [await world.bus.request(first) for _ in range(2)]
    same = await code_of(world, saving(make("fast", slots=[1])))
    refused = await code_of(world, saving(changed, make("other", slots=[1])))
    kept = await code_of(world, saving(changed, existing=ExistingPreset.KEEP))
    before = await revision_of(world, "fast")
    stale = await code_of(
        world, saving(changed, existing=ExistingPreset.REPLACE, expected_revision=7)
    )
    replaced = await code_of(
        world, saving(changed, existing=ExistingPreset.REPLACE, expected_revision=1)
    )

    assert isinstance(replies[0], Accepted)
    assert replies[0] == replies[1]
    assert (same, refused, kept, before) == (None, ErrorCode.NAME_TAKEN, None, 1)
    assert (stale, replaced) == (ErrorCode.CHANGED_SINCE, None)
    assert (await revision_of(world, "fast"), await revision_of(world, "other")) == (2, None)
    assert await facts(service) == [("saved", "fast", 1), ("saved", "fast", 2)]


async def test_deleted_preset_may_be_saved_again(world: World, service: Service) -> None:
    await world.bus.request(saving(make("fast", slots=[1])))
    delete = DeletePreset(command_id=new_id(), namespace="default", name="fast")

    replies = [await world.bus.request(delete) for _ in range(2)]
    gone = await revision_of(world, "fast")
    again = await code_of(
        world, DeletePreset(command_id=new_id(), namespace="default", name="fast")
    )
    await world.bus.request(saving(make("fast", slots=[2])))

    assert replies[0] == replies[1]
    assert (gone, again, await revision_of(world, "fast")) == (None, ErrorCode.NOT_FOUND, 1)
    assert await facts(service) == [
        ("saved", "fast", 1),
        ("deleted", "fast", 2),
        ("saved", "fast", 1),
    ]


async def test_concurrent_saves_of_a_name_are_serial(world: World, service: Service) -> None:
    codes = await asyncio.gather(
        *(code_of(world, saving(make("fast", slots=[n]))) for n in range(1, 7))
    )

    assert sorted(map(str, codes)) == ["None", *[str(ErrorCode.NAME_TAKEN)] * 5]
    assert await facts(service) == [("saved", "fast", 1)]


async def test_namespaces_share_the_presets_of_the_release(world: World, service: Service) -> None:
    await world.bus.request(saving(make("z", slots=[1]), make("B", slots=[1]), namespace="b"))
    await world.bus.request(saving(make("a", slots=[1]), namespace="a"))

    def names(answer: PresetList) -> list[str]:
        return [each.name for each in answer.presets]

    own = await world.bus.query(ListPresets(namespace="b"), PresetList)
    every, cursor = [], None
    while True:
        page = await world.bus.query(ListPresets(limit=2, cursor=cursor), PresetList)
        every += names(page)
        if (cursor := page.next_cursor) is None:
            break
    of_release = "balanced-vllm"
    codes = [
        await code_of(world, saving(make(of_release, slots=[1]))),
        await code_of(
            world, DeletePreset(command_id=new_id(), namespace="default", name=of_release)
        ),
    ]

    assert names(own)[:3] == ["B", "z", "balanced-llamacpp"]
    assert every == ["a", *names(own)]
    assert codes == [ErrorCode.NAME_TAKEN] * 2
    assert await revision_of(world, "z", "a") is None


async def test_submitted_task_takes_its_presets_values(world: World, service: Service) -> None:
    await world.bus.request(saving(make("wide", slots=[1, 2]), make("one", slots=[1])))
    file = task_file(parameters={}, presets=["one", "wide"])
    submit = SubmitTask(command_id=new_id(), task_id=new_id(), task=file)

    plan = await world.bus.query(ValidateTask(task=file), TaskPlan)
    replies = [await world.bus.request(submit)]
    replace = ExistingPreset.REPLACE
    await world.bus.request(saving(make("wide", slots=[3]), existing=replace))
    replies.append(await world.bus.request(submit))
    task = await world.bus.query(GetTask(task_id=submit.task_id), TaskView)

    assert [each.parameters for each in plan.experiments] == [{"slots": 1}, {"slots": 2}]
    assert isinstance(replies[0], Accepted)
    assert replies[0] == replies[1]
    assert task.task is not None
    assert (task.task.parameters, task.task.presets) == ({"slots": (1, 2)}, ())
    assert task.experiments_total == 2
    assert (
        task.notes[:2]
        == plan.notes[:2]
        == (
            "presets 'one' (revision 1), 'wide' (revision 1): slots",
            "presets: slots is that of 'wide', of 'one', 'wide'",
        )
    )


async def test_unfit_preset_refuses_the_task(world: World, service: Service) -> None:
    await world.bus.request(saving(make("fast", slots=[1]), make("unknown", sluts=[1])))
    for named, namespace, code in (
        ("missing", "default", ErrorCode.NOT_FOUND),
        ("fast", "other", ErrorCode.NOT_FOUND),
        ("balanced-vllm", "default", ErrorCode.BAD_REQUEST),  # of another engine
        ("unknown", "default", ErrorCode.BAD_REQUEST),  # the engine has no such parameter
    ):
        file = task_file(presets=[named])

        refused = await code_of(
            world,
            SubmitTask(command_id=new_id(), task_id=new_id(), namespace=namespace, task=file),
        )

        assert refused is code, named
