"""Secrets set, listed, opened for the node that runs an attempt, and sealed anew."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
from cryptography.fernet import Fernet
from msgspec.structs import replace

from schemas.base import Command, node_speaker
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.executor.attempts import StartExperiment
from schemas.orchestrator.experiments import SubmitTask
from schemas.orchestrator.secrets import (
    ListSecrets,
    OpenedSecrets,
    OpenSecrets,
    RemoveSecret,
    RotateSecretKey,
    SecretList,
    SecretView,
    SetSecret,
)
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from shared.errors import RefusedError
from shared.ids import new_id
from shared.local_platform.secrets_key import make_key
from shared.service import Service
from shared.testing import eventually
from tests.support.worlds.orchestrator import NODE, World, task_file

VALUE = "hf_planted_value_of_a_namespace"
Settings = OrchestratorSettings


@pytest.fixture
def settings(nats_url: str, postgres_dsn: str, tmp_path: Path) -> Settings:
    return Settings(nats_url=nats_url, postgres_dsn=postgres_dsn, data_dir=str(tmp_path))


@pytest.fixture
async def service(settings: Settings, world: World) -> AsyncIterator[Service]:
    world.auto_run = False
    async with create_service(settings).running() as running:
        yield running


async def reply_to(world: World, command: Command) -> Refused | int | None:
    reply = await world.bus.request(command)
    return reply if isinstance(reply, Refused) else reply.revision


async def set_secret(
    world: World, name: str = "HF_TOKEN", value: str = VALUE, namespace: str = "default"
) -> Refused | int | None:
    return await reply_to(
        world,
        SetSecret(command_id=new_id(), namespace=namespace, name=name, value=value, set_by="ada"),
    )


async def list_secrets(world: World, namespace: str | None = None) -> tuple[SecretView, ...]:
    return (await world.bus.query(ListSecrets(namespace=namespace), SecretList)).secrets


async def submit(world: World, *secrets: str, namespace: str = "default") -> Refused | UUID:
    task_id = new_id()
    command = SubmitTask(
        command_id=new_id(),
        task_id=task_id,
        namespace=namespace,
        task=task_file(secrets=list(secrets), parameters={"slots": [1]}),
    )
    reply = await world.bus.request(command)
    return reply if isinstance(reply, Refused) else task_id


async def start_of_task(world: World, *secrets: str) -> StartExperiment:
    assert isinstance(await submit(world, *secrets), UUID)
    await eventually(lambda: bool(world.starts), what="the attempt's start")
    return world.starts[-1]


async def open_as(world: World, speaker: str, attempt_id: UUID) -> dict[str, str]:
    query = OpenSecrets(speaker=speaker, attempt_id=attempt_id)
    return (await world.bus.query(query, OpenedSecrets)).values


async def test_secret_opens_for_its_attempts_node_alone(world: World, service: Service) -> None:
    await world.report()
    revisions = [await set_secret(world, value=value) for value in ("older", VALUE)]
    await set_secret(world, "OTHER_KEY")
    start = await start_of_task(world, "HF_TOKEN")

    opened = await open_as(world, node_speaker(NODE), start.attempt_id)
    for speaker in (node_speaker("n2"), "default", "_platform"):
        with pytest.raises(RefusedError, match=f"does not run at {speaker}"):
            await open_as(world, speaker, start.attempt_id)
    with pytest.raises(RefusedError, match="does not run at node_n1"):
        await open_as(world, node_speaker(NODE), new_id())
    [listed] = [view for view in await list_secrets(world) if view.name == "HF_TOKEN"]
    await world.finish(start)

    async def is_refused() -> bool:
        try:
            await open_as(world, node_speaker(NODE), start.attempt_id)
        except RefusedError as error:
            return error.code is ErrorCode.FORBIDDEN
        return False

    await eventually(is_refused, what="a refusal once the attempt is over")
    assert revisions == [1, 2]
    assert start.secrets == ("HF_TOKEN",)
    assert opened == {"HF_TOKEN": VALUE}
    assert (listed.set_by, listed.used_by, listed.revision) == ("ada", ("quick",), 2)


async def test_task_with_unknown_secret_is_refused(world: World, service: Service) -> None:
    await world.report()
    await set_secret(world, "WANDB_API_KEY")
    await set_secret(world, "HF_TOKEN", namespace="other")

    refused = await submit(world, "HF_TOKEN")
    bare = await submit(world, "HF_TOKEN", namespace="empty")

    assert isinstance(refused, Refused)
    assert isinstance(bare, Refused)
    assert (refused.code, refused.path) == (ErrorCode.NOT_FOUND, "$.secrets")
    assert refused.message == (
        "namespace default has no secret HF_TOKEN; it has WANDB_API_KEY;"
        " `gpusteward secret set NAME` sets one"
    )
    assert "it has none" in bare.message


async def test_removed_secret_is_named_to_the_executor(world: World, service: Service) -> None:
    await world.report()
    await set_secret(world)
    start = await start_of_task(world, "HF_TOKEN")
    removing = RemoveSecret(command_id=new_id(), namespace="default", name="HF_TOKEN")

    removed = await reply_to(world, removing)
    again = await reply_to(world, replace(removing, command_id=new_id()))

    with pytest.raises(RefusedError, match="has no secret HF_TOKEN; it has none"):
        await open_as(world, node_speaker(NODE), start.attempt_id)
    assert removed == 2
    assert isinstance(again, Refused)
    assert again.code is ErrorCode.NOT_FOUND


async def test_value_no_variable_holds_is_refused_unseen(world: World, service: Service) -> None:
    refusals = [await set_secret(world, value=value) for value in ("", "x" * 32_769, "a\0b")]

    messages = [each.message for each in refusals if isinstance(each, Refused)]
    assert len(messages) == 3
    assert not any("xxx" in message or "\0" in message for message in messages)
    assert await list_secrets(world) == ()


async def test_database_holds_no_value_and_no_hash(world: World, service: Service) -> None:
    await set_secret(world)

    assert service.database is not None
    [row] = await service.database.pool.fetch("SELECT * FROM secret")
    commands = await service.database.pool.fetchval("SELECT count(*) FROM command")
    assert VALUE.encode() not in bytes(row["sealed"])
    assert commands == 0


async def test_rotation_seals_every_row_anew(
    world: World, service: Service, settings: Settings
) -> None:
    await world.report()
    for number in range(3):
        await set_secret(world, f"NUMBER_{number}_KEY", f"value {number}")
    path = Path(settings.data_dir) / "secrets.key"
    key_before, mode = path.read_text().split(), path.stat().st_mode & 0o777
    names = [f"NUMBER_{number}_KEY" for number in range(3)]
    start = await start_of_task(world, *names)

    count = await reply_to(world, RotateSecretKey(command_id=new_id()))

    key_after = path.read_text().split()
    opened = await open_as(world, node_speaker(NODE), start.attempt_id)
    assert service.database is not None
    sealed = await service.database.pool.fetch("SELECT sealed FROM secret")
    assert count == 3
    assert (len(key_before), len(key_after), mode) == (1, 1, 0o600)
    assert key_before != key_after
    assert opened == {name: f"value {number}" for number, name in enumerate(names)}
    for row in sealed:
        Fernet(key_after[0]).decrypt(row["sealed"])


async def test_own_file_of_keys_is_never_written(
    nats_url: str, postgres_dsn: str, tmp_path: Path, world: World
) -> None:
    path, old, new = tmp_path / "keys", make_key(), make_key()
    path.write_text(f"# of this installation\n{old}\n")
    settings = Settings(nats_url=nats_url, postgres_dsn=postgres_dsn, secrets_key_file=str(path))
    rotate = RotateSecretKey(command_id=new_id())
    async with create_service(settings).running():
        await set_secret(world)
        too_early = await reply_to(world, rotate)
        path.write_text(f"{new}\n{old}\n")
        rotated = await reply_to(world, rotate)
        path.write_text(f"{new}\n")
        listed = await list_secrets(world)
        path.write_text(f"{old}\n")
        lost = await set_secret(world, "OTHER_KEY")
        path.write_text("short\n")
        broken = await set_secret(world, "OTHER_KEY")
        path.unlink()
        gone = await set_secret(world, "OTHER_KEY")

    assert isinstance(too_early, Refused)
    assert "is yours to change" in too_early.message
    assert rotated == 1
    assert [view.name for view in listed] == ["HF_TOKEN"]
    assert isinstance(lost, Refused)
    assert "every orchestrator needs the same file" in lost.message
    assert isinstance(broken, Refused)
    assert "line 1 of the keys" in broken.message
    assert "short" not in broken.message
    assert isinstance(gone, Refused)
    assert "there is no file" in gone.message


async def test_second_host_makes_no_key_of_its_own(
    world: World, service: Service, settings: Settings, tmp_path: Path
) -> None:
    await set_secret(world)
    assert (tmp_path / "secrets.key").exists()
    (tmp_path / "secrets.key").unlink()  # as on a host that never had it

    refused = await set_secret(world, "OTHER_KEY")

    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.UNSUPPORTED
    assert not (tmp_path / "secrets.key").exists()


async def test_row_is_not_opened_as_another(world: World, service: Service) -> None:
    await world.report()
    await set_secret(world, "HF_TOKEN", "of default")
    await set_secret(world, "HF_TOKEN", "of other", namespace="other")
    start = await start_of_task(world, "HF_TOKEN")
    assert service.database is not None
    await service.database.pool.execute(
        "UPDATE secret SET sealed = (SELECT sealed FROM secret WHERE namespace = 'other')"
        " WHERE namespace = 'default'"
    )

    with pytest.raises(RefusedError, match="no key of the platform opens HF_TOKEN"):
        await open_as(world, node_speaker(NODE), start.attempt_id)


def test_messages_show_no_value_in_their_text() -> None:
    command = SetSecret(command_id=new_id(), namespace="default", name="HF_TOKEN", value=VALUE)

    assert VALUE not in repr(command) + repr(OpenedSecrets(values={"HF_TOKEN": VALUE}))
    assert VALUE not in f"{Accepted(command_id=command.command_id)} {command}"
