"""A client that another program generates from the OpenAPI document, and a task driven by it."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.processes.command import run_command
from shared.testing import short_directory
from tests.support.generated_client.install import GENERATOR
from tests.support.paths import ROOT
from tests.support.processes.platform import PlatformProcess, quick_task

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
DEADLINE_SECONDS = 180.0
# The generator reads only the media types that it knows.
AS_BYTES = dict.fromkeys(("application/x-tar", "application/jsonl"), "application/octet-stream")


@pytest.fixture
async def platform() -> AsyncIterator[PlatformProcess]:
    with short_directory() as directory:
        running = PlatformProcess(directory / "data")
        try:
            await running.start()
            yield running
        finally:
            await running.stop()


@pytest.mark.skipif(
    not GENERATOR.is_current(),
    reason=f"needs {sys.executable} -m tests.support.generated_client.install",
)
async def test_generated_client_drives_a_task(platform: PlatformProcess, tmp_path: Path) -> None:
    document = tmp_path / "openapi.json"
    _, schema = await platform.request("GET", "/schema/openapi.json")
    document.write_text(json.dumps(schema))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"content_type_overrides": AS_BYTES}))

    generated = await run_command(
        (
            *(str(GENERATOR.program("openapi-python-client")), "generate", "--path", str(document)),
            *("--meta", "none", "--fail-on-warning", "--config", str(config)),
            *("--output-path", str(tmp_path / "client")),
        ),
        deadline_seconds=DEADLINE_SECONDS,
        environment={"PATH": f"{GENERATOR.python.parent}:{os.environ['PATH']}"},
    )
    driver = ROOT / "tests" / "support" / "generated_client" / "drive.py"
    task = tmp_path / "task.json"
    task.write_text(json.dumps(quick_task("generated")))
    driven = await run_command(
        ("sh", "-c", f"{GENERATOR.python} {driver} {platform.url} {DEADLINE_SECONDS} < {task}"),
        deadline_seconds=DEADLINE_SECONDS + 30,
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
    )

    assert generated.exit_code == 0, generated.stdout + generated.stderr
    assert driven.exit_code == 0, driven.stderr
    answer = json.loads(driven.stdout)
    assert (answer["state"], answer["planned"], answer["same"]) == ("completed", 4, True)
    assert answer["experiments"] == [[n, "succeeded"] for n in (1, 2, 3, 4)]
    assert all(score > 0 for score in answer["scores"])
    assert answer["gpus"]
    assert all(answer["gpus"])
    assert answer["refused"] == [True, "$.optimization.max_parallel"]
    assert answer["reservations"] >= 4
