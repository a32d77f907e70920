"""`gpusteward secret` and `audit export` at a real gateway; the orchestrator follows a script."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.errors import Accepted
from schemas.orchestrator.secrets import (
    ListSecrets,
    RemoveSecret,
    RotateSecretKey,
    SecretList,
    SecretView,
    SetSecret,
)
from shared.clock import utcnow
from shared.local_platform.secrets_key import KEY_BYTES, make_key
from tests.support.fakes.gateway import StubGateway
from tests.support.processes.command_line import Command
from tests.support.worlds.gateway import Api, gateway

VALUE = "planted-on-the-command-line"


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str) -> AsyncIterator[Api]:
    secrets: dict[str, SecretView] = {}

    def set_secret(command: SetSecret) -> Accepted:
        secrets[command.name] = SecretView(
            namespace=command.namespace,
            name=command.name,
            revision=1,
            set_at=utcnow(),
            used_by=("sweep",),
        )
        return Accepted(command_id=command.command_id, revision=1)

    async with gateway(nats_url, postgres_dsn) as running:
        await running.owners.answer(
            ListSecrets, lambda _: SecretList(secrets=tuple(secrets.values()))
        )
        await running.owners.answer(SetSecret, set_secret)
        await running.owners.accept(RemoveSecret)
        await running.owners.accept(RotateSecretKey)
        yield running


@pytest.fixture
def command(api: Api, tmp_path: Path) -> Command:
    return Command(StubGateway(), api.url, tmp_path)


def sent(api: Api) -> list[str]:
    return [each.value for each in api.owners.received if isinstance(each, SetSecret)]


async def test_value_is_read_from_input_or_file(api: Api, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"two\nlines\r\n")

    typed = await command("secret", "set", "HF_TOKEN", text=f"{VALUE}\n")
    by_file = await command("secret", "set", "A_KEY", "--from-file", str(file))
    listed = await command("secret", "list")
    as_json = await command("secret", "list", "--json")

    assert (typed.code, by_file.code) == (0, 0), typed.err + by_file.err
    assert sent(api) == [VALUE, "two\nlines"]
    assert "secret HF_TOKEN of namespace default is set" in typed.out
    assert "tasks sweep" in typed.out
    assert "HF_TOKEN" in listed.out
    assert [row["name"] for row in json.loads(as_json.out)["secrets"]] == ["HF_TOKEN", "A_KEY"]
    assert VALUE not in typed.out + typed.err + listed.out + as_json.out


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("HF_TOKEN", "", "found none"),
        ("HF_TOKEN", "\n", "found none"),
        ("HF_TOKEN", "x" * 32_769, "found more"),
        ("LD_PRELOAD", VALUE, "a variable such as HF_TOKEN"),
        ("GPUSTEWARD_X_TOKEN", VALUE, "a variable such as HF_TOKEN"),
    ],
)
async def test_wrong_secret_is_refused_in_a_sentence(
    api: Api, command: Command, name: str, value: str, sentence: str
) -> None:
    ended = await command("secret", "set", name, text=value)

    assert ended.code == 2
    assert sentence in ended.err
    assert value not in ended.err or len(value) < 2
    assert "Traceback" not in ended.err
    assert sent(api) == []


async def test_secret_is_removed_and_key_rotated(api: Api, command: Command) -> None:
    removed = await command("secret", "remove", "HF_TOKEN", "--yes")
    rotated = await command("secret", "rotate-key")
    key = await command("secret", "make-key")

    assert removed.out == "secret HF_TOKEN removed\n"
    assert rotated.out == "encrypted with the new key: 1 secret\n"
    assert len(key.out.strip()) == len(make_key()) > KEY_BYTES


async def test_audit_is_exported_as_json_lines(api: Api, command: Command, tmp_path: Path) -> None:
    await command("secret", "set", "HF_TOKEN", text=VALUE)
    await command("secret", "remove", "HF_TOKEN", "--yes")
    file = tmp_path / "audit.jsonl"

    printed = await command("audit", "export", "--since", "1h")
    written = await command("audit", "export", "--until", "2999-01-01", "--to", str(file))
    none = await command("audit", "export", "--until", "2001-01-01")
    wrong = await command("audit", "export", "--since", "soon")
    table = await command("audit", "--kind", "change")

    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [line["method"] for line in lines] == ["POST", "DELETE"]
    assert (written.code, written.out, none.out) == (0, "", "")
    assert file.read_text() == printed.out
    assert (wrong.code, "24h" in wrong.err) == (2, True)
    assert "POST /secrets/HF_TOKEN" in table.out
    assert VALUE not in printed.out + table.out
