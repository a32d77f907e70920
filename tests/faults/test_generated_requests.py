"""Requests generated from the OpenAPI document, and answers that it does not name.

`GPUSTEWARD_GENERATED_EXAMPLES=25` draws so many of each address and method.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.testing import eventually, run_apart, short_directory
from tests.support.processes.platform import PlatformProcess

EXAMPLES = int(os.environ.get("GPUSTEWARD_GENERATED_EXAMPLES", "10"))
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900 + 60 * EXAMPLES)]


@pytest.fixture
def platform() -> Iterator[PlatformProcess]:
    """On a simulated fleet, so that every owner answers."""
    with short_directory() as directory:
        running = PlatformProcess(directory / "data")
        try:
            run_apart(running.start())
            yield running
        finally:
            run_apart(running.stop())


async def test_generated_requests_get_documented_answers(
    platform: PlatformProcess, tmp_path: Path
) -> None:
    document = f"{platform.url}/schema/openapi.json"
    command = [
        *(sys.executable, "-m", "schemathesis.cli"),
        *("--config-file", str(Path(__file__).with_name("generated_requests.toml"))),
        *("run", document, "--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES)),
        *("--generation-database", "none", "--no-color", "--continue-on-failure"),
    ]

    done = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{platform.logs()}"
    tested = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", done.stdout)
    assert tested is not None, done.stdout
    assert len(set(tested.groups())) == 1
    await eventually(platform.is_ready, within_seconds=30, what="a whole platform afterwards")
