"""Lists objects of one kind, then yields what becomes of them, for as long as it is iterated."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from shared.errors import UnavailableError
from shared.kubernetes.client import KubernetesClient, decode
from shared.kubernetes.errors import (
    GONE,
    KubernetesError,
    KubernetesUnavailable,
    Status,
    error_of_status,
)
from shared.kubernetes.names import Resource

PAGE: Final = 500
LIST_SECONDS: Final = 30.0  # for one page
WATCH_SECONDS: Final = 240.0  # then the server ends it, and it goes on where it was
SILENCE_SECONDS: Final = 90.0  # a bookmark comes about once a minute
FIRST_RETRY_SECONDS: Final = 0.1
LAST_RETRY_SECONDS: Final = 3.0
BETWEEN_WATCHES_SECONDS: Final = 0.05  # also where a server ends each of them at once
REFUSED_RETRY_SECONDS: Final = 10.0  # a permission or a kind of object may be added


class KubernetesObject(Protocol):
    @property
    def metadata(self) -> Any:
        """The metadata, with `name` and `resource_version`."""


T = TypeVar("T", bound=KubernetesObject)


class Listed(Struct, Generic[T], frozen=True):
    """All there are now; what was known before and is not among them has gone."""

    objects: tuple[T, ...]


class Changed(Struct, Generic[T], frozen=True):
    """New, or not as it was."""

    object: T


class Removed(Struct, Generic[T], frozen=True):
    """Gone; the object as it was last."""

    object: T


class Interrupted(Struct, frozen=True):
    """What is known may be old, until `Resumed` or `Listed`; it is tried again."""

    error: KubernetesError


class Resumed(Struct, frozen=True):
    """After `Interrupted`: nothing was missed, changes follow as before."""


Watched = Listed[T] | Changed[T] | Removed[T] | Interrupted | Resumed


class _ListMetadata(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(Struct, Generic[T]):
    metadata: _ListMetadata
    items: list[T] | None = None


class _Event(Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(Struct):
    metadata: _ListMetadata


async def list_objects(
    client: KubernetesClient, resource: Resource, type_: type[T], **where: str | None
) -> tuple[tuple[T, ...], str]:
    """List all objects, with the version of the list. `where`: namespace, labels, fields."""
    path, selectors = _place(resource, **where)
    while True:
        try:
            return await _list(client, path, selectors, type_)
        except KubernetesError as error:
            if error.code != GONE:  # pages are of one version, which may be forgotten meanwhile
                raise


async def watch(
    client: KubernetesClient, resource: Resource, type_: type[T], **where: str | None
) -> AsyncGenerator[Watched[T], None]:
    """Yield changes without end. `where`: namespace, labels, fields, the last two as selectors.

    `type_` is a Struct with the object's `metadata`. After a refusal (`Interrupted`) it tries again
    in 10 s, and soon after a lost connection.
    """
    path, selectors = _place(resource, **where)
    version: str | None = None
    failures = 0
    while True:
        pause = BETWEEN_WATCHES_SECONDS
        try:
            if version is None:
                objects, version = await list_objects(client, resource, type_, **where)
                failures = 0
                yield Listed(objects)
            async for event in _changes(client, path, selectors, type_, version):
                if isinstance(event, str):
                    version = event
                elif not isinstance(event, Resumed):
                    version = event.object.metadata.resource_version
                    yield event
                elif failures:
                    failures = 0
                    yield event
        except KubernetesError as error:
            is_away = isinstance(error, UnavailableError)
            version = version if is_away else None
            if error.code != GONE:
                pause = min(FIRST_RETRY_SECONDS * 2 ** min(failures, 5), LAST_RETRY_SECONDS)
                pause = pause if is_away else REFUSED_RETRY_SECONDS
                failures += 1
                yield Interrupted(error)
        await asyncio.sleep(pause)


def _place(
    resource: Resource,
    *,
    namespace: str | None = None,
    labels: str | None = None,
    fields: str | None = None,
) -> tuple[str, dict[str, str]]:
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return resource.path(namespace), {key: text for key, text in selectors.items() if text}


async def _list(
    client: KubernetesClient, path: str, selectors: dict[str, str], type_: type[T]
) -> tuple[tuple[T, ...], str]:
    objects: list[T] = []
    params = {**selectors, "limit": str(PAGE)}
    form: Any = _Page[type_]  # type: ignore[valid-type]  # as a value
    while True:
        body = await client.call("GET", path, params=params, timeout_seconds=LIST_SECONDS)
        page: _Page[T] = decode(body, form)
        objects += page.items or ()
        if not page.metadata.continue_:
            return tuple(objects), page.metadata.resource_version
        params["continue"] = page.metadata.continue_


async def _changes(
    client: KubernetesClient, path: str, selectors: dict[str, str], type_: type[T], version: str
) -> AsyncIterator[Changed[T] | Removed[T] | Resumed | str]:
    """`Resumed` once it runs, changes, and versions to go on from."""
    # Many watches of one moment shall not all end in one.
    seconds = round(WATCH_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311  # no secret
    params = {
        **selectors,
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(seconds),
    }
    async with client.stream(path, params=params, silence_seconds=SILENCE_SECONDS) as pieces:
        yield Resumed()
        partial_line = b""
        async for piece in pieces:
            *lines, partial_line = (partial_line + piece).split(b"\n")
            for line in lines:
                if line:
                    yield _read(line, type_)


def _read(line: bytes, type_: type[T]) -> Changed[T] | Removed[T] | str:
    event = decode(line, _Event)
    match event.type:
        case "ADDED" | "MODIFIED":
            return Changed(decode(bytes(event.object), type_))
        case "DELETED":
            return Removed(decode(bytes(event.object), type_))
        case "BOOKMARK":
            return decode(bytes(event.object), _Bookmark).metadata.resource_version
        case "ERROR":
            raise error_of_status(decode(bytes(event.object), Status))
    raise KubernetesUnavailable(0, "Unreadable", f"an event of type {event.type!r}")
