"""A secret of a namespace, planted and looked for everywhere while its engine runs and after."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import psutil
import pytest

from schemas.gateway.endpoints import ENDPOINTS
from shared.testing import eventually, run_apart, short_directory
from tests.support.processes.platform import PlatformProcess, marked_processes, quick_task
from tests.support.processes.secret_search import (
    contents_below,
    everything_stored,
    is_in,
    process_texts,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

PLANTED = "hf_planted_in_a_namespace_7c1f"
OTHER = "planted_and_named_by_no_task_22e0"
OPERATORS = "hf_of_the_operator_of_this_host"


@pytest.fixture(scope="module")
def running_platform() -> Iterator[PlatformProcess]:
    with short_directory() as directory:
        running = PlatformProcess(
            directory / "data",
            environment={"HF_TOKEN": OPERATORS, "GPUSTEWARD_LOCAL_TOKEN": "always"},
        )
        try:
            run_apart(running.start())
            yield running
        finally:
            run_apart(running.stop())


@pytest.fixture
async def platform(running_platform: PlatformProcess) -> PlatformProcess:
    await eventually(running_platform.is_ready, within_seconds=60, what="a whole platform")
    return running_platform


def long_task(name: str, *secrets: str) -> dict[str, Any]:
    task = quick_task(name, parameters={}, secrets=list(secrets))
    task["benchmark"] |= {"max_requests_per_iteration": 10_000, "max_time_per_iteration": 0.1}
    return task


def engines_of(platform: PlatformProcess) -> list[psutil.Process]:
    return [
        process
        for process in marked_processes(str(platform.directory.installation_id()))
        if "GPUSTEWARD_RESERVATION" in process.environ()
    ]


def holders_of(secret: str) -> set[tuple[int, str]]:
    """Which processes of this host have it, and where; but for this one, which planted it."""
    return {
        (pid, kind)
        for pid, kind, text in process_texts()
        if secret.encode() in text and pid != os.getpid()
    }


async def everything_sent(platform: PlatformProcess, heard: list[bytes]) -> Any:
    """Hear what an admin of the bus may, which is every event and every passing view."""
    endpoint = platform.directory.read_endpoint()
    assert endpoint is not None
    assert endpoint.nats_url is not None
    path = next((platform.data_dir / "nats" / "users").glob("admin*.json"))
    login = json.loads(path.read_text())
    client = await nats.connect(
        endpoint.nats_url,
        user=login["user"],
        password=login["password"],
        inbox_prefix=f"_INBOX.{login['user']}".encode(),
    )

    async def hear(message: Any) -> None:
        heard.append(message.subject.encode() + b" " + message.data)

    for kind in ("evt", "live"):
        await client.subscribe(f"gpusteward.{kind}.>", cb=hear)
    return client


async def answers_of(platform: PlatformProcess) -> list[object]:
    """What every list of the API says, whatever it needs beside."""
    paths = [
        row.address()
        for name, row in ENDPOINTS.items()
        if row.method == "GET" and not row.places and row.answer is not bytes
        if not name.startswith(("watch", "follow"))
    ]
    return [await platform.request("GET", path) for path in paths]


async def test_planted_secret_is_in_its_engine_alone(
    platform: PlatformProcess, tmp_path: Path
) -> None:
    file = tmp_path / "value"
    file.write_text(f"{PLANTED}\n")
    done = await platform.command("secret", "set", "HF_TOKEN", "--from-file", str(file))
    file.unlink()
    set_other = await platform.request(
        "POST", "/api/v1/secrets/OTHER_TOKEN?namespace=default", {"value": OTHER}
    )
    wrong = await platform.request("POST", "/api/v1/secrets/HF_TOKEN", {"value": [PLANTED]})
    number = await platform.request("POST", "/api/v1/secrets/HF_TOKEN", {"value": 4711471147114711})
    heard: list[bytes] = []
    listener = await everything_sent(platform, heard)
    task_id = await platform.submit(long_task("planted", "HF_TOKEN"))

    async def is_measured() -> bool:
        rows = await platform.experiments(task_id)
        return bool(rows) and rows[0]["attempts"] != [] and bool(engines_of(platform))

    await eventually(is_measured, within_seconds=60, what="an engine under load")
    engines = engines_of(platform)
    holders = holders_of(PLANTED)
    environments = [engine.environ() for engine in engines]
    listed = await platform.command("secret", "list", "--json")
    view = await platform.until_finished(task_id)
    await asyncio.sleep(1)
    await listener.close()
    experiment_id = (await platform.experiments(task_id))[0]["experiment_id"]
    export = await platform.command("export", "task", task_id, str(tmp_path / "exported"))
    places: dict[str, object] = {
        "commands": [
            *(done, listed, export),
            await platform.command("audit"),
            await platform.command("audit", "export"),
        ],
        "answers": [set_other, wrong, number, await answers_of(platform)],
        "experiment": [
            await platform.experiments(task_id),
            await platform.request("GET", f"/api/v1/experiments/{experiment_id}/logs"),
        ],
        "database": await everything_stored(platform),
        "bus": heard,
        **dict(contents_below(tmp_path)),
        **dict(contents_below(platform.data_dir)),
    }

    assert view["state"] == "completed", view
    assert done[0] == 0, done
    assert (set_other[0], wrong[0], number[0], export[0]) == (200, 400, 400, 0)
    assert "4711" not in str(number)
    assert holders == {(engine.pid, "environ") for engine in engines}
    assert {environment["HF_TOKEN"] for environment in environments} == {PLANTED}
    assert not any("OTHER_TOKEN" in environment for environment in environments)
    assert len(heard) > 10
    assert len(places) > 100
    assert holders_of(PLANTED) == set()
    assert {
        (place, secret)
        for place, content in places.items()
        for secret in (PLANTED, OTHER)
        if is_in(content, secret)
    } == set()
    [row] = [each for each in json.loads(listed[1])["secrets"] if each["name"] == "HF_TOKEN"]
    assert row["used_by"] == ["planted"]


async def test_removed_secret_fails_the_attempt_clearly(platform: PlatformProcess) -> None:
    await platform.request("POST", "/api/v1/secrets/GONE_KEY", {"value": "soon"})
    task = long_task("removed", "GONE_KEY") | {"parameters": {"slots": [4, 8]}}
    task["optimization"] |= {"max_parallel": 1}
    task_id = await platform.submit(task)
    await eventually(lambda: bool(engines_of(platform)), within_seconds=60, what="an engine")
    status, _ = await platform.request("DELETE", "/api/v1/secrets/GONE_KEY")
    view = await platform.until_finished(task_id)
    failures = [
        attempt["failure"]
        for experiment in await platform.experiments(task_id)
        for attempt in experiment["attempts"]
        if attempt["failure"]
    ]
    refused = await platform.request("POST", "/api/v1/tasks", long_task("again", "GONE_KEY"))

    assert status == 200
    assert view["state"] in {"completed", "failed"}
    assert {failure["kind"] for failure in failures} == {"secret_missing"}
    assert "has no secret GONE_KEY" in failures[0]["message"]
    assert refused[0] == 404
    assert "has no secret GONE_KEY" in refused[1]["detail"]


async def test_rotation_leaves_what_engines_get(platform: PlatformProcess) -> None:
    await platform.request("POST", "/api/v1/secrets/KEPT_KEY", {"value": "as before"})
    key_before = platform.directory.secrets_key_path.read_text()
    rotated = await platform.command("secret", "rotate-key")
    task_id = await platform.submit(long_task("rotated", "KEPT_KEY"))

    await eventually(lambda: bool(engines_of(platform)), within_seconds=60, what="an engine")
    values = {engine.environ()["KEPT_KEY"] for engine in engines_of(platform)}
    await platform.request("POST", f"/api/v1/tasks/{task_id}/cancel", {"reason": "seen"})
    await platform.until_finished(task_id)

    assert rotated[0] == 0, rotated
    assert "encrypted with the new key" in rotated[1]
    assert platform.directory.secrets_key_path.read_text() != key_before
    assert values == {"as before"}
