"""Datasets that people upload: over HTTP to a real gateway; the orchestrator is scripted."""

import asyncio
import hashlib
import json
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from schemas.errors import ErrorCode
from schemas.gateway.datasets import (
    PIECE_BYTES,
    DatasetKind,
    DatasetPiece,
    GetDatasetPiece,
)
from schemas.gateway.tokens import Role
from schemas.orchestrator.experiments import SubmitTask
from schemas.orchestrator.uploads import ListUploadUses, UploadUse, UploadUses
from schemas.orchestrator.views import GetTask
from schemas.task.dataset import DatasetFormat, DropReason
from shared.client.discovery import Address
from shared.client.errors import ApiError
from shared.client.http import StewardClient
from shared.messaging.bus import Bus
from shared.testing import eventually
from tests.real.gateway.test_process import kill, start
from tests.real.gateway.test_tokens import Caller, admins
from tests.support.ports import free_port
from tests.support.worlds.gateway import TASK, Api, gateway, make_task_view

ROWS = "".join(json.dumps({"prompt": f"question {n} of many"}) + "\n" for n in range(9))
CONTENT = (ROWS + json.dumps({"prompt": ""}) + "\n").encode()
TRACE = b'{"timestamp": 0, "input_length": 20, "output_length": 3, "hash_ids": [1]}\n'


def use_of(content: bytes, name: str = "chats") -> UploadUse:
    return UploadUse(
        upload=name, sha256=hashlib.sha256(content).hexdigest(), tasks=("tune", "tune-2")
    )


async def answer_uses(api: Api, *uses: UploadUse) -> None:
    await api.owners.answer(ListUploadUses, UploadUses(uses=uses))


@asynccontextmanager
async def uploading(
    nats_url: str, dsn: str, *uses: UploadUse, **settings: Any
) -> AsyncIterator[tuple[Api, StewardClient]]:
    async with (
        gateway(nats_url, dsn, **settings) as api,
        StewardClient(Address(api.url)) as client,
    ):
        await answer_uses(api, *uses)
        yield api, client


def write(directory: Path, content: bytes = CONTENT, name: str = "chats.jsonl") -> Path:
    path = directory / name
    path.write_bytes(content)
    return path


async def stored(dsn: str) -> tuple[int, int, int]:
    connection = await asyncpg.connect(dsn)
    try:
        row = await connection.fetchrow(
            "SELECT (SELECT count(*) FROM gateway.dataset), (SELECT count(*) FROM"
            " gateway.dataset_content), (SELECT count(*) FROM gateway.dataset_piece)"
        )
    finally:
        await connection.close()
    assert row is not None
    return row[0], row[1], row[2]


async def refusal(call: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(ApiError) as refused:
        await call
    assert refused.value.code is not None
    return refused.value.code, refused.value.problem.detail


async def test_upload_says_what_the_file_holds(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with uploading(nats_url, postgres_dsn) as (_, client):
        view = await client.add_dataset(write(tmp_path), "chats")
        trace = await client.add_dataset(write(tmp_path, TRACE, "t.jsonl"))
        listed = await client.datasets()
        shown = await client.dataset("chats")

    assert view.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert (view.size_bytes, view.contents.rows) == (len(CONTENT), 10)
    assert view.contents.format is DatasetFormat.PROMPTS
    assert view.contents.dropped == {DropReason.EMPTY: 1}
    assert "10 rows of prompts, of them 1 without a prompt" in view.contents.text
    assert "prompts have 4 words on average" in view.contents.text
    assert (trace.name, trace.contents.kind) == ("t.jsonl", DatasetKind.TRACE)
    assert "a trace of 1 requests" in trace.contents.text
    assert listed == (view, trace)
    assert shown == view


async def test_same_file_twice_is_stored_once(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with uploading(nats_url, postgres_dsn) as (_, client):
        first = await client.add_dataset(write(tmp_path), "chats")
        again = await client.add_dataset(write(tmp_path), "chats")
        other = await client.add_dataset(write(tmp_path), "same", namespace="other")
        counts = await stored(postgres_dsn)
        await client.remove_dataset("chats")
        left = await stored(postgres_dsn)
        await client.remove_dataset("same", namespace="other")
        none = await stored(postgres_dsn)

    assert again == first
    assert other.sha256 == first.sha256
    assert (counts, left, none) == ((2, 1, 1), (1, 1, 1), (0, 0, 0))


async def test_name_means_the_newest_file_for_new_tasks_alone(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    newer = CONTENT * 2
    task = TASK | {"benchmark": {"traffic_scenarios": ["dataset"], "dataset": {"upload": "chats"}}}
    digests = [hashlib.sha256(content).hexdigest() for content in (CONTENT, newer)]
    old = json.loads(json.dumps(task))
    old["benchmark"]["dataset"]["sha256"] = digests[0]

    async with uploading(nats_url, postgres_dsn, use_of(CONTENT)) as (api, client):
        await api.owners.accept(SubmitTask)
        await api.owners.answer(GetTask, lambda query: make_task_view(query.task_id))
        await client.add_dataset(write(tmp_path), "chats")
        await client.submit_task(json.dumps(task).encode())
        await client.add_dataset(write(tmp_path, newer), "chats")
        await client.submit_task(json.dumps(task).encode())
        await client.submit_task(json.dumps(old).encode())
        submitted = [each for each in api.owners.received if isinstance(each, SubmitTask)]
        code, unknown = await refusal(
            client.submit_task(json.dumps(old).replace(digests[0], "0" * 64).encode())
        )
        bus = Bus("test", nats_url)
        await bus.open()
        piece = await bus.query(GetDatasetPiece(sha256=digests[0], number=0), DatasetPiece)
        await bus.close()

    datasets = [each.task.benchmark.dataset for each in submitted]
    assert [each.sha256 for each in datasets if each] == [digests[0], digests[1], digests[0]]
    # Its ending told the format, and its name here has none.
    assert {each.format for each in datasets if each} == {DatasetFormat.PROMPTS}
    assert piece.content == CONTENT
    assert (code, "has no dataset chats with SHA-256" in unknown) == (ErrorCode.BAD_REQUEST, True)


@pytest.mark.parametrize(
    ("benchmark", "words"),
    [
        ({"dataset": {"upload": "other"}}, "namespace default has no dataset other"),
        ({"dataset": {"upload": "t.jsonl"}}, "expected a dataset, t.jsonl is a trace"),
        ({"trace": {"upload": "chats"}}, "expected a trace, chats is a dataset"),
        ({"dataset": {"upload": "a", "path": "b"}}, "expected one of `path`, `url` and `upload`"),
    ],
)
async def test_task_with_an_upload_that_is_not_is_refused(
    benchmark: dict[str, Any], words: str, nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    scenarios = {"traffic_scenarios": list(benchmark)}
    task = json.dumps(TASK | {"benchmark": benchmark | scenarios}).encode()

    async with uploading(nats_url, postgres_dsn) as (_, client):
        await client.add_dataset(write(tmp_path), "chats")
        await client.add_dataset(write(tmp_path, TRACE, "t.jsonl"))
        submitted = await refusal(client.submit_task(task))
        validated = await refusal(client.validate_task(task))

    for code, detail in (submitted, validated):
        assert code is ErrorCode.BAD_REQUEST
        assert words in detail


async def test_file_in_use_is_removed_by_force_alone(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with uploading(nats_url, postgres_dsn, use_of(CONTENT)) as (_, client):
        await client.add_dataset(write(tmp_path), "chats")
        shown = await client.dataset("chats")
        code, detail = await refusal(client.remove_dataset("chats"))
        kept = await client.datasets()
        await client.remove_dataset("chats", force=True)
        gone, _ = await refusal(client.remove_dataset("chats", force=True))

    assert shown.used_by == ("tune", "tune-2")
    assert (code, "tune, tune-2" in detail) == (ErrorCode.CONFLICT, True)
    assert len(kept) == 1
    assert gone is ErrorCode.NOT_FOUND
    assert await stored(postgres_dsn) == (0, 0, 0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b" \n\n ", "an empty file"),
        (b"PK\x03\x04" + bytes(100), "a ZIP archive"),
        (b"one\x00two\n", "a NUL byte"),
        (b'{"prompt": 1}\n{"prompt"\n', "expected JSON in line 2"),
        (TRACE + b'{"timestamp": -5}\n', "a request of a trace in line 2"),
    ],
)
async def test_file_that_cannot_be_used_leaves_nothing(
    content: bytes, words: str, nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with uploading(nats_url, postgres_dsn) as (_, client):
        code, detail = await refusal(client.add_dataset(write(tmp_path, content)))

    assert code is ErrorCode.BAD_REQUEST
    assert words in detail
    assert await stored(postgres_dsn) == (0, 0, 0)


async def test_column_of_another_name_is_the_tasks_to_say(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with uploading(nats_url, postgres_dsn) as (_, client):
        view = await client.add_dataset(write(tmp_path, b"id,asked\n1,why\n", "a.csv"), "calls")

    assert view.contents.format is DatasetFormat.CSV
    assert "a task has to name" in view.contents.text
    assert "it has id, asked" in view.contents.text


async def test_file_over_the_limit_is_refused_before_it_is_sent(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)  # a hole: nothing of it is read

    async with uploading(nats_url, postgres_dsn) as (_, client):
        code, detail = await refusal(client.add_dataset(path))

    assert (code, f"at most {1 << 30} bytes" in detail) == (ErrorCode.TOO_LARGE, True)


async def test_namespace_has_so_much_room(nats_url: str, postgres_dsn: str, tmp_path: Path) -> None:
    large = [f"{'words ' * 170_000}{n}\n".encode() for n in range(2)]

    async with uploading(nats_url, postgres_dsn, datasets_quota_mb=1, largest_dataset_mb=2) as (
        api,
        client,
    ):
        first = await client.add_dataset(write(tmp_path, large[0], "a.txt"))
        code, detail = await refusal(client.add_dataset(write(tmp_path, large[1] * 1, "b.txt")))
        again = await client.add_dataset(write(tmp_path, large[0], "a.txt"), "c")
        elsewhere = await client.add_dataset(
            write(tmp_path, large[1], "b.txt"), namespace="elsewhere"
        )
        _, page = await api.get("/api/v1/datasets?namespace=default")
        # Without a length that is known before.
        status, _ = await api.post(
            "/api/v1/datasets?name=d.txt", data=chunks_of([large[1]]), headers={}
        )

    assert code is ErrorCode.TOO_LARGE
    assert "GPUSTEWARD_GATEWAY_DATASETS_QUOTA_MB" in detail
    assert (again.sha256, elsewhere.namespace) == (first.sha256, "elsewhere")
    assert (page["used_bytes"], page["quota_bytes"]) == (len(large[0]), 1 << 20)
    assert status == 413
    assert await stored(postgres_dsn) == (3, 2, 2 * -(-len(large[0]) // PIECE_BYTES))


async def chunks_of(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_upload_that_is_cut_off_leaves_nothing(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield CONTENT
        raise ConnectionResetError

    async with uploading(nats_url, postgres_dsn) as (api, client):
        with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
            await api.session.post(f"{api.url}/api/v1/datasets?name=cut", data=cut())
        await client.add_dataset(write(tmp_path), "whole")
        names = [view.name for view in await client.datasets()]

    assert names == ["whole"]
    assert await stored(postgres_dsn) == (1, 1, 1)


@pytest.mark.long
async def test_gateway_killed_in_mid_upload_leaves_nothing(
    nats_url: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    port, sent = free_port(), asyncio.Event()
    process = await start(nats_url, postgres_dsn, tmp_path, port)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield CONTENT * 1000
            sent.set()
            await asyncio.sleep(0.01)

    try:
        await eventually((tmp_path / "ready").exists, within_seconds=60, what="readiness")
        url = f"http://127.0.0.1:{port}/api/v1/datasets?name=chats"
        async with aiohttp.ClientSession() as session:
            upload = asyncio.ensure_future(session.post(url, data=endless()))
            await sent.wait()
            process.send_signal(signal.SIGKILL)
            with pytest.raises(aiohttp.ClientError):
                await upload
    finally:
        kill(process)
        await process.wait()

    assert list(temporary.iterdir()) == []
    async with uploading(nats_url, postgres_dsn) as (_, client):
        assert await client.datasets() == ()
        view = await client.add_dataset(write(tmp_path), "chats")
    assert view.size_bytes == len(CONTENT)
    assert await stored(postgres_dsn) == (1, 1, 1)


async def test_other_namespaces_and_viewers_add_and_learn_nothing(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await answer_uses(admin.api)
        owner = Caller(admin.api, (await admin.make(namespaces=["a"]))["secret"])
        foreign = Caller(admin.api, (await admin.make(namespaces=["b"]))["secret"])
        viewer = Caller(admin.api, (await admin.make(role=Role.VIEWER, namespaces=["a"]))["secret"])
        path = "/api/v1/datasets"
        added, _ = await admin.api.post(f"{path}?name=chats", data=CONTENT, headers=owner.headers)
        statuses = {}
        for who, caller in {"foreign": foreign, "viewer": viewer}.items():
            for method, where, data in (
                ("POST", f"{path}?name=chats&namespace=a", CONTENT),
                ("GET", f"{path}?namespace=a", None),
                ("GET", f"{path}/chats?namespace=a", None),
                ("DELETE", f"{path}/chats?namespace=a", None),
            ):
                status, _ = await admin.api.call(
                    method, where, **({"data": data} if data else {}), headers=caller.headers
                )
                statuses[who, method, where.count("/")] = status
        known, theirs = await admin.api.get(f"{path}/chats", headers=foreign.headers)
        _, listed = await admin.api.get(path, headers=foreign.headers)
        _, audit = await admin.api.get("/api/v1/audit", headers=admin.headers)

    assert added == 201
    assert [statuses["foreign", *key] for key in KEYS] == [403, 403, 403, 403]
    assert [statuses["viewer", *key] for key in KEYS] == [403, 200, 200, 403]
    assert (known, "namespace b has no dataset" in theirs["detail"]) == (404, True)
    assert (listed["datasets"], listed["used_bytes"]) == ([], 0)
    [record] = [each for each in audit["entries"] if each["status"] == 201 and each["path"] == path]
    assert record["after"]["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    refused = [each for each in audit["entries"] if each["path"].startswith(path)]
    assert len(refused) == 5


KEYS = [("POST", 3), ("GET", 3), ("GET", 4), ("DELETE", 4)]
