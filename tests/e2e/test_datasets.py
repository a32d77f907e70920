"""A file that is uploaded by the command line, and a task of a whole platform that uses it."""

import json
from pathlib import Path

import pytest

from shared.testing import eventually, short_directory
from tests.support.processes.platform import PlatformProcess, quick_task

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
ROWS = "".join(json.dumps({"prompt": f"question {n} of many"}) + "\n" for n in range(30))


async def test_uploaded_dataset_is_measured_and_held_while_used(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(ROWS)
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data", arguments=("--simulate",))
        try:
            await platform.start()
            await eventually(platform.is_ready, within_seconds=60, what="a whole platform")
            code, added, errors = await platform.command(
                "dataset", "add", str(file), "--name", "chats"
            )
            assert code == 0, errors
            assert "chats: 30 rows of prompts; prompts have 4 words" in added
            task = quick_task("with-dataset", parameters={})
            task["benchmark"] |= {
                "traffic_scenarios": ["dataset"],
                "dataset": {"upload": "chats"},
                "max_requests_per_iteration": 100_000,
                "max_time_per_iteration": 0.2,
            }
            task_id = await platform.submit(task)
            _, shown, _ = await platform.command("dataset", "show", "chats")
            refused_code, _, refused = await platform.command("dataset", "remove", "chats", "--yes")
            await platform.until_finished(task_id)
            _, measured = await platform.request("GET", f"/api/v1/tasks/{task_id}/experiments")
            code, removed, _ = await platform.command("dataset", "remove", "chats", "--yes")
            _, listed, _ = await platform.command("dataset", "list")
        finally:
            await platform.stop()

    assert "used by unfinished tasks: with-dataset" in shown
    assert refused_code != 0
    assert "unfinished tasks use dataset chats: with-dataset" in refused
    [experiment] = measured["experiments"]
    assert experiment["state"] == "succeeded", experiment
    assert experiment["dataset"]["used"] == 30
    assert (code, removed.strip()) == (0, "dataset chats removed")
    assert "there is no dataset here yet" in listed
