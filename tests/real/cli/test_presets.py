"""`gpusteward preset` through a gateway to an orchestrator, all of them real."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.errors import EXIT_CODE, ErrorCode
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from tests.support.fakes.gateway import StubGateway
from tests.support.processes.command_line import Command
from tests.support.worlds.gateway import gateway


@pytest.fixture
async def command(nats_url: str, postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Command]:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with (
        create_service(settings).running(),
        gateway(nats_url, postgres_dsn, data_dir=str(tmp_path)) as api,
    ):
        yield Command(StubGateway(), api.url, tmp_path)


async def test_presets_are_merged_exported_and_imported(command: Command) -> None:
    wide = json.dumps({"engine": "simulated", "parameters": {"slots": [1, 2], "seed": [1]}})

    saved = await command("preset", "save", "wide", "-", text=wide)
    merged = await command("preset", "save", "deep", "-", text='{"parameters": {"slots": [2, 4]}}')
    merged = await command(
        *("preset", "merge", "wide", "deep", "--how", "intersection", "--save", "both")
    )
    exported = await command("preset", "export")
    deleted = await command("preset", "delete", "wide", "--yes")
    gone = await command("preset", "show", "wide")
    imported = await command("preset", "import", "-", text=exported.out)
    listed = await command("preset", "list")
    shown = await command("preset", "show", "both", "--json")

    assert (saved.code, saved.out) == (0, "preset wide saved, revision 1 of namespace default\n")
    assert merged.out.splitlines() == [
        "  slots: [2]",
        "slots has the values that 'wide', 'deep' share",
        "preset both saved",
    ]
    assert [each["name"] for each in json.loads(exported.out)["presets"]] == [
        "both", "deep", "wide",
    ]  # fmt: skip
    assert (deleted.code, gone.code) == (0, EXIT_CODE[ErrorCode.NOT_FOUND])
    assert imported.out == "presets both, deep, wide are saved\n", imported.err
    rows = [line.split()[:2] for line in listed.out.splitlines()]
    assert rows[1:5] == [["both", "default"], ["deep", "default"], ["wide", "default"],
                         ["balanced-llamacpp", "of"]]  # fmt: skip
    document = json.loads(shown.out)
    assert (document["engine"], document["parameters"]) == ("simulated", {"slots": [2]})


async def test_a_bad_preset_is_refused_with_its_place(command: Command) -> None:
    refused = await command("preset", "save", "p", "-", text='{"parameters": {"slots": []}}')
    misspelt = await command("preset", "save", "p", "-", text='{"parameter": {"slots": [1]}}')
    taken = await command("preset", "save", "balanced-vllm", "-", text='{"parameters": {"n": [1]}}')

    assert (refused.code, misspelt.code) == (EXIT_CODE[ErrorCode.BAD_REQUEST],) * 2
    assert "$.presets[0].parameters" in refused.err
    assert "`parameter`" in misspelt.err
    assert taken.code == EXIT_CODE[ErrorCode.NAME_TAKEN]
