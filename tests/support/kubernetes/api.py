"""The Kubernetes API as plain JSON, past every client of ours: what tests make and count."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector, WSMsgType
from yarl import URL

Object = dict[str, Any]
Query = Mapping[str, str | int]

CALL_SECONDS: Final = 30.0
BUSY_SECONDS: Final = 0.1
LEFT_SECONDS: Final = 5.0
STDOUT: Final = 1  # the channel of a pod's `exec`
AT_ONCE: Final = 32
CLUSTER_SCOPED: Final = frozenset(
    {
        "AcceleratorClass",
        "ClusterBaseModel",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterServingRuntime",
        "CustomResourceDefinition",
        "DeviceClass",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PersistentVolume",
        "ResourceSlice",
        "ValidatingWebhookConfiguration",
    }
)


class ApiError(Exception):
    """What the apiserver answered instead."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.message = str(status.get("message", ""))
        super().__init__(f"{code} {self.reason}: {self.message}")


def path_to(
    api_version: str, kind: str, namespace: str | None = None, name: str | None = None
) -> str:
    """`api/v1/namespaces/default/pods/one`; without a namespace the kind in all of them."""
    parts = ["api" if api_version == "v1" else "apis", api_version]
    if namespace is not None and kind not in CLUSTER_SCOPED:
        parts += ["namespaces", namespace]
    parts.append(_plural(kind))
    if name is not None:
        parts.append(name)
    return "/".join(parts)


def path_of(thing: Mapping[str, Any]) -> str:
    """Of an object that says its kind and name; its namespace is `default` where it has none."""
    metadata = thing["metadata"]
    namespace = metadata.get("namespace", "default")
    return path_to(thing["apiVersion"], thing["kind"], namespace, metadata["name"])


def _plural(kind: str) -> str:
    lower = kind.lower()
    if lower.endswith("cy"):
        return f"{lower[:-1]}ies"
    return f"{lower}es" if lower.endswith("ss") else f"{lower}s"


class Api:
    """One user's calls. A refusal raises ApiError."""

    def __init__(self, session: ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._left: set[asyncio.Task[ClientResponse]] = set()

    @classmethod
    @asynccontextmanager
    async def connected(cls, url: str, token: str, ca_file: str) -> "AsyncIterator[Api]":
        """For as long as it is used, in this event loop."""
        connector = TCPConnector(ssl=ssl.create_default_context(cafile=ca_file), limit=AT_ONCE * 2)
        async with ClientSession(
            connector=connector,
            headers={"Authorization": f"Bearer {token}"},
            timeout=ClientTimeout(CALL_SECONDS),
        ) as session:
            api = cls(session, url)
            try:
                yield api
            finally:
                if api._left:
                    await asyncio.wait(api._left, timeout=LEFT_SECONDS)

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Query | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Any:
        """The answer's JSON, or its text if it is none.

        Waits while the apiserver begins to serve a kind that was just installed.
        """
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            try:
                return await self._call(method, path, body, query or {}, content_type, accept)
            except ApiError as error:
                if error.code != 429 or time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(BUSY_SECONDS)

    async def _call(
        self, method: str, path: str, body: Any, query: Query, content_type: str, accept: str
    ) -> Any:
        async with self._answer(
            method,
            path,
            query,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type, "Accept": accept},
        ) as response:
            text = await response.text()
            return json.loads(text) if text.startswith("{") else text

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, query: Query, **options: Any
    ) -> AsyncIterator[ClientResponse]:
        """Raises ApiError for a refusal. A connection that is left before its end is cut: closed in
        order it would outlast the test.
        """
        parameters = {name: str(value) for name, value in query.items()}
        async with await self._opened(
            method, self._target(path), params=parameters, **options
        ) as response:
            # It is the pool's again, and out of reach, once the body was read or has broken off.
            connection = response.connection
            transport = connection.transport if connection is not None else None
            if response.status >= 300:
                text = await response.text()
                status = json.loads(text) if text.startswith("{") else {"message": text}
                raise ApiError(response.status, status)
            try:
                yield response
            except BaseException:
                if transport is not None:
                    transport.abort()
                raise

    async def _opened(self, method: str, url: URL, **options: Any) -> ClientResponse:
        """Goes on alone where it is cancelled: asyncio of Python 3.11 forgets a connection that is
        about to be made.
        """

        async def open_it() -> ClientResponse:
            return await self._session.request(method, url, **options)

        opening = asyncio.create_task(open_it())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._left.add(opening)
            opening.add_done_callback(_close)
            raise

    async def get(self, path: str, **query: str | int) -> Any:
        return await self.call("GET", path, query=query)

    async def items(self, path: str, **query: str | int) -> list[Object]:
        found: list[Object] = (await self.get(path, **query))["items"]
        return found

    async def metadata(self, path: str) -> list[Object]:
        """Of a collection whose objects are large."""
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        found: list[Object] = (await self.call("GET", path, accept=accept))["items"] or []
        return found

    async def create(self, thing: Mapping[str, Any], **query: str | int) -> Object:
        """Its namespace is `default` where it says none."""
        made: Object = await self.call("POST", path_of(thing).rpartition("/")[0], thing, query)
        return made

    async def create_all(self, things: Iterable[Mapping[str, Any]]) -> list[Object]:
        return await gather_some(self.create(each) for each in things)

    async def apply(
        self, thing: Mapping[str, Any], *, manager: str, force: bool = True, **query: str | int
    ) -> Object:
        """Server-side."""
        made: Object = await self.call(
            "PATCH",
            path_of(thing),
            thing,
            {"fieldManager": manager, "force": str(force).lower(), **query},
            content_type="application/apply-patch+yaml",
        )
        return made

    async def merge(self, path: str, change: Mapping[str, Any]) -> Object:
        """A merge patch; a field that is None goes."""
        merged: Object = await self.call(
            "PATCH", path, change, content_type="application/merge-patch+json"
        )
        return merged

    async def delete(self, path: str, **query: str | int) -> None:
        """One object or a whole collection. One that is gone already is no error."""
        try:
            await self.call("DELETE", path, query=query)
        except ApiError as error:
            if error.code != 404:
                raise

    async def watch(
        self, path: str, *, since: str, **query: str | int
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """Kind of event and its object, until the apiserver ends it; an ERROR has a status."""
        parameters = {"watch": "true", "resourceVersion": since, **query}
        async with self._answer(
            "GET", path, parameters, timeout=ClientTimeout(None, sock_connect=CALL_SECONDS)
        ) as response:
            buffered = b""
            try:
                async for piece in response.content.iter_any():
                    *lines, buffered = (buffered + piece).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        yield event["type"], event["object"]
            finally:
                # Closed in order it would outlive the test's loop, waiting for the other side.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()

    async def execute(self, path: str, *command: str) -> str:
        """What a program in a container writes, by the path of its pod's `exec`."""
        query = urlencode([("command", each) for each in command] + [("stdout", "1")])
        written = b""
        async with self._session.ws_connect(
            URL(f"{self._url}/{path}?{query}", encoded=True), protocols=["v5.channel.k8s.io"]
        ) as socket:
            async for message in socket:
                if message.type is WSMsgType.BINARY and message.data[0] == STDOUT:
                    written += message.data[1:]
        return written.decode()

    def _target(self, path: str) -> URL:
        return URL(f"{self._url}/{path}", encoded=True)


def _close(opening: asyncio.Task[ClientResponse]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        response = opening.result()
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()
        response.close()


async def gather_some(work: Iterable[Awaitable[Object]]) -> list[Object]:
    """All of it, some of it at once; the first error ends it."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(each: Awaitable[Object]) -> Object:
        async with room:
            return await each

    async with asyncio.TaskGroup() as group:
        started: Sequence[asyncio.Task[Object]] = [group.create_task(one(each)) for each in work]
    return [each.result() for each in started]
