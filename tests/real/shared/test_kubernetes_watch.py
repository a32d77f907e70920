"""Watches and calls against an API whose answers the test scripts, over real connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec import Struct

from shared.kubernetes import client as client_module
from shared.kubernetes import watching
from shared.kubernetes.access import ClusterAccess, NoCluster
from shared.kubernetes.client import KubernetesClient
from shared.kubernetes.errors import KubernetesError, KubernetesUnavailable
from shared.kubernetes.names import Resource
from shared.kubernetes.watching import Changed, Interrupted, Listed, Removed, Resumed, watch
from shared.waiting import within
from tests.support.http_server import serving

THINGS = Resource("example.io/v1", "things")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""


class Thing(Struct, frozen=True):
    metadata: Metadata


class ScriptedApi:
    """Answers requests one after another as scripted; a watch after the last one hangs."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.ended = asyncio.Event()
        self.changed = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.answers:
            return await self.answers.pop(0)(request)
        await self.ended.wait()
        return web.Response()


def metadata(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


def thing(name: str, version: str) -> Thing:
    return Thing(Metadata(name, version))


def listing(version: str, *names: str, more: str = "") -> Answer:
    items = [metadata(name, version) for name in names]
    return body({"metadata": {"resourceVersion": version, "continue": more}, "items": items})


def body(data: Any, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(data, status=status)

    return answer


def refusal(code: int, reason: str) -> Answer:
    return body({"kind": "Status", "code": code, "reason": reason, "message": "so"}, code)


def events(*lines: Any, cut_after: asyncio.Event | None = None) -> Answer:
    """The watch ends after them, or its connection breaks in the middle of another, then."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        await response.write(text[:7])  # pieces need not end where lines do
        await response.write(text[7:])
        if cut_after is not None:
            await response.write(b'{"type": "ADD')
            await cut_after.wait()
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


def event(type_: str, name: str, version: str) -> dict[str, Any]:
    return {"type": type_, "object": metadata(name, version)}


GONE = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}


@asynccontextmanager
async def served(api: ScriptedApi, directory: Path) -> AsyncIterator[KubernetesClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    token, kubeconfig = directory / "token", directory / "kubeconfig"
    token.write_text("first")
    async with serving(app) as address:
        config = {
            "current-context": "c",
            "contexts": [
                {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}
            ],
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {"tokenFile": str(token)}}],
        }
        kubeconfig.write_text(json.dumps(config))
        try:
            async with KubernetesClient(ClusterAccess(kubeconfig=str(kubeconfig))) as found:
                yield found
        finally:
            api.ended.set()


async def seen(api: ScriptedApi, directory: Path, count: int) -> list[Any]:
    """The first events of a watch."""
    found: list[Any] = []
    async with (
        served(api, directory) as client,
        within(20),
        aclosing(watch(client, THINGS, Thing)) as all_,
    ):
        async for each in all_:
            found.append(each)
            if isinstance(each, Changed):
                api.changed.set()
            if len(found) == count:
                break
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "REFUSED_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(client_module, "_LOGIN_AGAIN_SECONDS", 0.0)


async def test_paged_list_is_whole_before_changes(tmp_path: Path) -> None:
    api = ScriptedApi(
        listing("5", "a", more="next"),
        listing("5", "b"),
        events(event("ADDED", "c", "6"), event("MODIFIED", "a", "7"), event("DELETED", "b", "8")),
    )

    assert await seen(api, tmp_path, 4) == [
        Listed((thing("a", "5"), thing("b", "5"))),
        Changed(thing("c", "6")),
        Changed(thing("a", "7")),
        Removed(thing("b", "8")),
    ]
    assert api.requests[1]["continue"] == "next"
    assert api.requests[2]["resourceVersion"] == "5"


async def test_ended_watch_resumes_after_last_version(tmp_path: Path) -> None:
    bookmark = {"type": "BOOKMARK", "object": metadata("", "20")}
    api = ScriptedApi(
        listing("5"),
        events(event("ADDED", "a", "6")),
        events(bookmark),
        events(event("ADDED", "b", "21")),
    )

    found = await seen(api, tmp_path, 3)

    assert found == [Listed(()), Changed(thing("a", "6")), Changed(thing("b", "21"))]
    assert [each.get("resourceVersion") for each in api.requests] == [None, "5", "6", "20"]


async def test_cut_connection_resumes_without_a_list(tmp_path: Path) -> None:
    api = ScriptedApi(listing("5"))
    api.answers += [
        events(event("ADDED", "a", "6"), cut_after=api.changed),
        events(event("ADDED", "b", "7")),
    ]

    found = await seen(api, tmp_path, 5)

    assert [type(each) for each in found] == [Listed, Changed, Interrupted, Resumed, Changed]
    assert isinstance(found[2].error, KubernetesUnavailable)
    assert api.requests[2]["resourceVersion"] == "6"


@pytest.mark.parametrize("forgotten", [events(GONE), refusal(410, "Expired")])
async def test_a_forgotten_version_is_listed_anew(tmp_path: Path, forgotten: Answer) -> None:
    api = ScriptedApi(listing("5", "a"), forgotten, listing("9", "b"))

    assert await seen(api, tmp_path, 2) == [Listed((thing("a", "5"),)), Listed((thing("b", "9"),))]


async def test_expired_pages_are_listed_from_the_first(tmp_path: Path) -> None:
    api = ScriptedApi(listing("5", "a", more="x"), refusal(410, "Expired"), listing("9", "b"))

    assert await seen(api, tmp_path, 1) == [Listed((thing("b", "9"),))]


@pytest.mark.parametrize(
    ("answer", "code"),
    [(refusal(403, "Forbidden"), 403), (refusal(404, "NotFound"), 404), (body({"items": 1}), 0)],
)
async def test_refused_or_unreadable_watch_is_retried(
    tmp_path: Path, answer: Answer, code: int
) -> None:
    first, second = await seen(ScriptedApi(answer, listing("1", "a")), tmp_path, 2)

    assert first.error.code == code
    assert second == Listed((thing("a", "1"),))


async def test_a_token_that_ended_is_read_anew(tmp_path: Path) -> None:
    async def ended(_: web.Request) -> web.StreamResponse:
        (tmp_path / "token").write_text("second")
        return web.json_response({"reason": "Unauthorized", "code": 401}, status=401)

    api = ScriptedApi(ended, listing("1"))

    assert await seen(api, tmp_path, 1) == [Listed(())]
    assert api.tokens == ["Bearer first", "Bearer second"]


async def test_missing_answer_is_an_error_in_time(tmp_path: Path) -> None:
    async with served(ScriptedApi(), tmp_path) as client:
        client.timeout_seconds = 0.2
        with pytest.raises(KubernetesUnavailable) as late:
            await client.version()

    assert (late.value.code, late.value.reason) == (0, "Timeout")


async def test_a_missing_kubeconfig_is_told_with_its_path(tmp_path: Path) -> None:
    async with KubernetesClient(ClusterAccess(kubeconfig=str(tmp_path / "none"))) as client:
        with pytest.raises(NoCluster, match="none"):
            await client.version()


@pytest.mark.parametrize("text", ["", "{", "- 1", "a: b", '{"contexts": []}'])
async def test_invalid_kubeconfig_has_no_cluster(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad").write_text(text)
    async with KubernetesClient(ClusterAccess(kubeconfig=str(tmp_path / "bad"))) as client:
        with pytest.raises(KubernetesError):
            await client.version()
