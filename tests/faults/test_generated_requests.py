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

# A third of all cases, and half of the others: what is covered of one address is nothing to
# another, so that a run without time for all of them begins some.
OF_GPUS = "availability|checks|reservations|select-node"
TASK_FILES = ("--include-path-regex", "^/api/v1/tasks/validate$")
GPU_REQUESTS = ("--include-path-regex", f"^/api/v1/({OF_GPUS})")
OTHERS = ("--exclude-path-regex", f"^/api/v1/({OF_GPUS}|tasks/validate$)")
# Their bodies are those of POST /tasks/validate and POST /reservations, whose every field is
# covered there; requests are still drawn, alone and in sequences.
COVERED_ELSEWHERE = (
    "POST /api/v1/tasks",
    "POST /api/v1/availability",
    "POST /api/v1/reservations/{reservation_id}/what-if",
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900 + 60 * EXAMPLES)]


@pytest.fixture(scope="module")
def platform() -> Iterator[PlatformProcess]:
    """On a simulated fleet, so that every owner answers."""
    with short_directory() as directory:
        running = PlatformProcess(directory / "data")
        try:
            run_apart(running.start())
            yield running
        finally:
            run_apart(running.stop())


async def test_drawn_requests_get_documented_answers(
    platform: PlatformProcess, tmp_path: Path
) -> None:
    """Alone and in sequences, over the whole document."""
    selected, total = await ask(platform, tmp_path, "--phases", "examples,fuzzing,stateful")

    assert selected == total


@pytest.mark.parametrize(
    "part", [TASK_FILES, GPU_REQUESTS, OTHERS], ids=["task files", "GPU requests", "others"]
)
async def test_every_field_s_bounds_get_documented_answers(
    platform: PlatformProcess, tmp_path: Path, part: tuple[str, ...]
) -> None:
    excluded = [word for name in COVERED_ELSEWHERE for word in ("--exclude-name", name)]

    selected, _ = await ask(platform, tmp_path, "--phases", "coverage", *part, *excluded)

    assert selected > 0


async def ask(platform: PlatformProcess, folder: Path, *options: str) -> tuple[int, int]:
    """Return of how many operations all answers were as documented, and how many there are."""
    document = f"{platform.url}/schema/openapi.json"
    command = [
        *(sys.executable, "-m", "schemathesis.cli"),
        *("--config-file", str(Path(__file__).with_name("generated_requests.toml"))),
        *("run", document, "--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES)),
        *("--generation-database", "none", "--no-color", "--continue-on-failure", *options),
    ]

    done = await asyncio.to_thread(
        subprocess.run, command, cwd=folder, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{platform.logs()}"
    tested = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", done.stdout)
    assert tested is not None, done.stdout
    assert tested[1] == tested[3], done.stdout
    await eventually(platform.is_ready, within_seconds=30, what="a whole platform afterwards")
    return int(tested[1]), int(tested[2])
