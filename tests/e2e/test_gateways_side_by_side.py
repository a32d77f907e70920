"""Two gateways of one platform behind a balancer that sends every request to the next of them."""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from shared.ids import new_id
from shared.local_platform.tokens import digest_of
from shared.testing import eventually, short_directory
from tests.support.ports import free_port
from tests.support.processes.platform import PlatformProcess, quick_task

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

HOST = "gpus.example"  # the balancer's, which it passes on
ADMIN = "admin-of-both"
TASKS = 2
Answer = tuple[int, Any, Mapping[str, str]]


@dataclass
class Balanced:
    """A client of both gateways. What it sends together goes to both at once."""

    session: aiohttp.ClientSession
    urls: tuple[str, ...]
    token: str | None = ADMIN
    sent: "itertools.count[int]" = field(default_factory=itertools.count)

    def next_url(self) -> str:
        return self.urls[next(self.sent) % len(self.urls)]

    async def call(self, method: str, path: str, body: object = None, **further: str) -> Answer:
        headers = {"Host": HOST, **{name.replace("_", "-"): v for name, v in further.items()}}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        url = f"{self.next_url()}/api/v1{path}"
        async with self.session.request(method, url, json=body, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None, response.headers

    async def get(self, path: str, **further: str) -> Answer:
        return await self.call("GET", path, **further)

    async def found(self, path: str) -> Any:
        status, body, _ = await self.get(path)
        assert status == 200, body
        return body

    def of(self, token: str | None) -> "Balanced":
        """Somebody else, who begins where this client is."""
        return Balanced(self.session, self.urls, token, self.sent)


@asynccontextmanager
async def a_gateway(platform: PlatformProcess, directory: Path) -> AsyncIterator[str]:
    """One more process, started as the platform started its own."""
    pid, port = platform.pid_of("gateway"), free_port()
    assert pid is not None
    tokens, ready = directory / "tokens.json", directory / f"ready-{port}"
    tokens.write_text(json.dumps([{"token_sha256": digest_of(ADMIN), "role": "admin"}]))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.gateway"),
        env={
            **psutil.Process(pid).environ(),
            "GPUSTEWARD_GATEWAY_PORT": str(port),
            "GPUSTEWARD_GATEWAY_TOKENS_FILE": str(tokens),
            "GPUSTEWARD_GATEWAY_ALLOWED_HOSTS": HOST,
            "GPUSTEWARD_READY_FILE": str(ready),
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await eventually(ready.exists, within_seconds=60, what="a gateway")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def follow(balanced: Balanced, query: str, count: int, at_once: int) -> list[dict[str, Any]]:
    """Events, from the next gateway after every few."""
    found: list[dict[str, Any]] = []
    headers = {"Host": HOST, "Authorization": f"Bearer {balanced.token}"}
    while len(found) < count:
        after = found[-1]["cursor"] if found else 0
        url = f"{balanced.next_url()}/ws/events?after={after}&{query}"
        async with balanced.session.ws_connect(url, headers=headers) as socket:
            for _ in range(min(at_once, count - len(found))):
                event = await socket.receive_json(timeout=60)
                if event["cursor"] is not None:
                    found.append(event)
    return found


async def pages(balanced: Balanced, path: str, items: str) -> list[Any]:
    """A list one by one, each from the next gateway."""
    found, cursor = [], ""
    while True:
        page = await balanced.found(f"{path}{'&' if '?' in path else '?'}limit=1{cursor}")
        found += page[items]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def one_experiment(name: str) -> dict[str, Any]:
    return quick_task(name, parameters={"ttft-seconds": [0.005], "tpot-seconds": [0.001]})


async def test_what_is_begun_at_one_goes_on_at_the_other() -> None:
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data")
        try:
            await platform.start()
            async with AsyncExitStack() as stack:
                starting = [stack.enter_async_context(a_gateway(platform, directory)) for _ in "ab"]
                urls = await asyncio.gather(*starting)
                session = await stack.enter_async_context(aiohttp.ClientSession())
                balanced = Balanced(session, tuple(urls))

                await a_key_is_spent_once(balanced)
                await lists_go_on(balanced)
                await tags_hold(balanced)
                await a_revoked_token_is_refused_at_once(balanced)
                await a_login_counts(balanced)
                await events_are_followed(balanced)
        finally:
            await platform.stop()


async def a_key_is_spent_once(balanced: Balanced) -> None:
    """Also where both gateways get it at once."""
    for number in range(TASKS):
        task, key = one_experiment(f"once-{number}"), f"once-{number}"
        sent = [balanced.call("POST", "/tasks", task, Idempotency_Key=key) for _ in range(4)]
        answers = await asyncio.gather(*sent)
        assert {status for status, _, _ in answers} == {201}, answers
        assert len({body["task_id"] for _, body, _ in answers}) == 1
    other = one_experiment("another")
    sent = [balanced.call("POST", "/tasks", other, Idempotency_Key="once-0") for _ in range(2)]
    refused = [body["code"] for _, body, _ in await asyncio.gather(*sent)]

    request = {"holder": "notebook", "request": {"gpus": 1}}
    sent = [balanced.call("POST", "/reservations", request, Idempotency_Key="r") for _ in range(4)]
    reserved = await asyncio.gather(*sent)

    tasks = (await balanced.found("/tasks"))["tasks"]
    assert sorted(task["task_name"] for task in tasks) == [f"once-{n}" for n in range(TASKS)]
    assert refused == ["command_id_reused"] * 2
    assert {status for status, _, _ in reserved} == {201}
    [reservation_id] = {body["reservation_id"] for _, body, _ in reserved}
    await balanced.call("DELETE", f"/reservations/{reservation_id}")


async def lists_go_on(balanced: Balanced) -> None:
    """By cursors of the other gateway, and without what comes meanwhile."""
    for number in range(3):
        body = {"name": f"listed-{number}", "role": "viewer"}
        assert (await balanced.call("POST", "/tokens", body))[0] == 201

    async def every_experiment_ended() -> bool:
        experiments = (await balanced.found("/experiments"))["experiments"]
        return all(each["state"] == "succeeded" for each in experiments)

    await eventually(every_experiment_ended, within_seconds=90, what="the end of every task")
    for path, items, key in (
        ("/tasks", "tasks", "task_id"),
        ("/experiments", "experiments", "experiment_id"),
        ("/reservations", "reservations", "reservation_id"),
        ("/gpus", "gpus", "uuid"),
        ("/tokens", "tokens", "token_id"),
    ):
        whole = [each[key] for each in (await balanced.found(path))[items]]
        assert [each[key] for each in await pages(balanced, path, items)] == whole, path
        assert len(whole) >= 2, path
    audited = [each["audit_id"] for each in await pages(balanced, "/audit", "entries")]
    assert audited == sorted(set(audited), reverse=True)


async def tags_hold(balanced: Balanced) -> None:
    """The tag of an answer of the one is known at the other, until what it is of has changed."""
    task = (await balanced.found("/tasks?limit=1"))["tasks"][0]
    path = f"/tasks/{task['task_id']}"
    tags = [(await balanced.get(path))[2]["ETag"] for _ in range(2)]
    unchanged = [(await balanced.get(path, If_None_Match=tags[0]))[:2] for _ in range(2)]
    stale, problem, _ = await balanced.call("DELETE", path, If_Match='"of an earlier answer"')
    deleted, _, _ = await balanced.call("DELETE", path, If_Match=tags[0])
    gone = [(await balanced.get(path))[0] for _ in range(2)]
    again, _, _ = await balanced.call("DELETE", path, If_Match=tags[0])

    assert tags[0] == tags[1]
    assert unchanged == [(304, None)] * 2
    assert (stale, problem["code"]) == (412, "changed_since")
    assert (deleted, gone, again) == (200, [404, 404], 412)


async def a_revoked_token_is_refused_at_once(balanced: Balanced) -> None:
    for _ in range(4):
        _, made, _ = await balanced.call("POST", "/tokens", {"name": "ci", "role": "viewer"})
        somebody = balanced.of(made["secret"])
        before = [(await somebody.get("/me"))[0] for _ in range(2)]
        await balanced.call("DELETE", f"/tokens/{made['token']['token_id']}")
        after = [(await somebody.get("/me"))[0] for _ in range(2)]
        assert (before, after) == ([200, 200], [401, 401])


async def a_login_counts(balanced: Balanced) -> None:
    """Made at the one it reads and changes at the other, and ended at the one it is at both."""
    _, made, _ = await balanced.call("POST", "/tokens", {"name": "ada", "role": "submitter"})
    browser = balanced.of(None)
    status, me, headers = await browser.call("POST", "/login", {"token": made["secret"]})
    assert status == 200, me
    [(name, morsel)] = SimpleCookie(headers["Set-Cookie"]).items()
    known = {"Cookie": f"{name}={morsel.value}", "Origin": f"https://{HOST}"}
    csrf = {**known, "X_CSRF_Token": me["csrf_token"]}

    read = [await browser.get("/me", **known) for _ in range(2)]
    unsaid = [
        (await browser.call("POST", "/events", {"name": "by-cookie"}, **known))[0] for _ in range(2)
    ]
    changed = [
        (await browser.call("POST", "/events", {"name": "by-cookie"}, **csrf))[0] for _ in range(2)
    ]
    left, _, _ = await browser.call("POST", "/logout", **csrf)
    after = [(await browser.get("/me", **known))[0] for _ in range(2)]

    assert [(status, body) for status, body, _ in read] == [(200, me)] * 2
    assert (unsaid, changed) == ([403, 403], [202, 202])
    assert (left, after) == (204, [401, 401])


async def events_are_followed(balanced: Balanced) -> None:
    """While they happen, a few from each gateway in turn."""
    names = [f"step-{number}-{new_id().hex}" for number in range(20)]

    async def publish() -> None:
        for name in names:
            status, problem, _ = await balanced.call("POST", "/events", {"name": name})
            assert status == 202, problem

    async with asyncio.TaskGroup() as group:
        group.create_task(publish())
        following = [
            group.create_task(follow(balanced, "type=gateway.custom", len(names) + 2, few))
            for few in (1, 3, 7)
        ]
    log = await balanced.found("/events?type=gateway.custom&limit=1000")

    expected = [(event["cursor"], event["message_id"]) for event in log["events"]]
    assert len(expected) == len(names) + 2  # those of the login came first
    for each in following:
        assert [(event["cursor"], event["message_id"]) for event in each.result()] == expected
