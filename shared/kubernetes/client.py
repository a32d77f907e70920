"""Calls of a cluster's API over the transport and logins of the `kubernetes` package.

Bodies are decoded by Structs of what is read: the package's own models take seconds and hundreds
of megabytes for a large cluster. The package is imported with the first call.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from shared.kubernetes.access import ClusterAccess
from shared.kubernetes.errors import KubernetesError, KubernetesUnavailable, error_of
from shared.kubernetes.names import Resource
from shared.waiting import within

if TYPE_CHECKING:
    import aiohttp
    from kubernetes.aio.client import ApiClient

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Propagation = Literal["Foreground", "Background", "Orphan"]
T = TypeVar("T")

APPLY: Final = "application/apply-patch+yaml"  # which JSON is
_BAD_REQUEST: Final = 400
_UNAUTHORIZED: Final = 401
_LOGIN_AGAIN_SECONDS: Final = 5.0
_USER_AGENT: Final = "gpusteward"
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io/v1", "selfsubjectaccessreviews", is_namespaced=False
)


class AccessReview(Struct, frozen=True):
    """Whether a call would be allowed, and the cluster's reason."""

    is_allowed: bool
    reason: str = ""


class KubernetesClient:
    """One cluster. Every call raises KubernetesError for a refusal, KubernetesUnavailable where no
    answer came in time, and NoCluster where no configuration leads to a cluster.
    """

    def __init__(self, access: ClusterAccess | None = None, *, timeout_seconds: float = 10) -> None:
        self.access = access or ClusterAccess()
        self.timeout_seconds = timeout_seconds
        self._api: ApiClient | None = None
        self._logging_in = asyncio.Lock()
        self._logged_in_at = 0.0
        self._replaced: list[ApiClient] = []

    async def close(self) -> None:
        for api in (*self._replaced, *([self._api] if self._api is not None else [])):
            await api.close()  # type: ignore[no-untyped-call]  # the package has no annotations
        self._api, self._replaced = None, []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(
        self,
        resource: Resource,
        name: str,
        type_: type[T],
        *,
        namespace: str | None = None,
        subresource: str = "",
    ) -> T:
        path = resource.path(namespace, name, subresource=subresource)
        return decode(await self.call("GET", path), type_)

    async def create(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str | None = None
    ) -> bytes:
        return await self.call("POST", resource.path(namespace), body=body)

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        field_manager: str,
        force: bool = False,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """Server-side apply of an object with its name (and namespace) in its metadata.

        A conflict with another field manager is an error unless forced. With a `resourceVersion` in
        the metadata it is also one if the object has changed since.
        """
        metadata = body["metadata"]
        query = {"fieldManager": field_manager, "force": str(force).lower(), **(params or {})}
        path = resource.path(metadata.get("namespace"), metadata["name"])
        return await self.call("PATCH", path, params=query, body=body, content_type=APPLY)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        propagation: Propagation = "Background",
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Ask for its deletion; `uid` spares another object of the same name."""
        body: dict[str, Any] = {"propagationPolicy": propagation}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self.call("DELETE", resource.path(namespace, name), body=body)

    async def version(self) -> str:
        """Such as v1.34.4."""

        class Version(Struct):
            gitVersion: str  # noqa: N815  # the API's name

        return decode(await self.call("GET", "/version"), Version).gitVersion

    async def may(
        self,
        verb: str,
        resource: Resource,
        *,
        namespace: str | None = None,
        subresource: str = "",
        name: str = "",
    ) -> AccessReview:
        """Return whether RBAC allows a request. Admission of the cluster is not asked."""
        group = resource.api_version.rpartition("/")[0]
        attributes = {"verb": verb, "group": group, "resource": resource.plural}
        if namespace is not None:
            attributes["namespace"] = namespace
        if subresource:
            attributes["subresource"] = subresource
        if name:
            attributes["name"] = name
        body = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        status = msgspec.json.decode(await self.create(ACCESS_REVIEWS, body)).get("status") or {}
        return AccessReview(bool(status.get("allowed")), str(status.get("reason") or ""))

    async def call(
        self,
        method: Method,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = None,
    ) -> bytes:
        """The answer's body, whole."""
        async with self._answer(
            method,
            path,
            params=params,
            body=body,
            content_type=content_type,
            timeout_seconds=timeout_seconds or self.timeout_seconds,
        ) as answer:
            with _silence_as_error():
                return await answer.read()

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        silence_seconds: float | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An answer as it comes, in pieces of any size; both times None are without end.

        `silence_seconds` is how long nothing may come.
        """
        async with self._answer(
            "GET",
            path,
            params=params,
            timeout_seconds=timeout_seconds,
            silence_seconds=silence_seconds,
        ) as answer:
            yield _pieces(answer)

    @asynccontextmanager
    async def websocket(
        self, path: str, *, params: Sequence[tuple[str, str]], protocol: str, largest_bytes: int
    ) -> AsyncIterator["aiohttp.ClientWebSocketResponse"]:
        """A connection of frames, as exec has; its user sets the deadlines."""
        import aiohttp

        api = await self._connect()
        # The package makes its session with the first call of its own only.
        session = api.rest_client.pool_manager or api.rest_client._create_pool_manager()  # noqa: SLF001  # it has no other way
        api.rest_client.pool_manager = session
        url = f"{api.configuration.host}{path}?{urlencode(params)}"
        try:
            with _silence_as_error():
                connection = await session.ws_connect(
                    url,
                    headers=await _headers(api),
                    protocols=(protocol,),
                    max_msg_size=largest_bytes,
                    server_hostname=api.configuration.tls_server_name,
                )
        except KubernetesUnavailable as error:
            if isinstance(error.__cause__, aiohttp.WSServerHandshakeError):
                refusal = error.__cause__
                raise error_of(refusal.status, refusal.message.encode()) from refusal
            raise
        async with connection:
            yield connection

    @asynccontextmanager
    async def _answer(
        self,
        method: Method,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = None,
        silence_seconds: float | None = None,
    ) -> AsyncIterator["aiohttp.ClientResponse"]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=timeout_seconds,
            sock_connect=self.timeout_seconds,
            sock_read=silence_seconds,
        )
        query = f"?{urlencode(params)}" if params else ""
        api = await self._connect()
        answer = await self._send(api, method, f"{path}{query}", body, content_type, timeout)
        if answer.status == _UNAUTHORIZED and await self._log_in_again(api):
            answer.release()
            api = await self._connect()
            answer = await self._send(api, method, f"{path}{query}", body, content_type, timeout)
        async with answer:
            if answer.status >= _BAD_REQUEST:
                with _silence_as_error():
                    refusal = await answer.read()
                raise error_of(answer.status, refusal)
            yield answer

    async def _send(
        self,
        api: "ApiClient",
        method: Method,
        path: str,
        body: Mapping[str, Any] | None,
        content_type: str,
        timeout: "aiohttp.ClientTimeout",  # noqa: ASYNC109  # aiohttp's own
    ) -> "aiohttp.ClientResponse":
        with _silence_as_error():
            response = await api.rest_client.request(  # type: ignore[no-untyped-call]  # the client has no types
                method,
                f"{api.configuration.host}{path}",
                headers={**await _headers(api), "Content-Type": content_type},
                body=body,
                _request_timeout=timeout,
            )
        answer: aiohttp.ClientResponse = response.response
        return answer

    async def _connect(self) -> "ApiClient":
        if self._api is None:
            async with self._logging_in:
                if self._api is None:
                    await self._log_in()
        if self._api is None:
            raise KubernetesUnavailable(0, "Closed", "the connection to the cluster is closed")
        return self._api

    async def _log_in(self) -> None:
        from kubernetes.aio.client import ApiClient

        self._logged_in_at = time.monotonic()
        async with within(self.timeout_seconds):
            configuration = await self.access.load()
        self._api = ApiClient(configuration)

    async def _log_in_again(self, refused: "ApiClient") -> bool:
        """Return True if there is another login than the refused one: tokens of plugins and files
        expire.
        """
        async with self._logging_in:
            if self._api is not refused:
                return True
            if time.monotonic() - self._logged_in_at < _LOGIN_AGAIN_SECONDS:
                return False
            await self._log_in()
            self._replaced.append(refused)  # its watches go on until their answers end
            for older in self._replaced[:-1]:
                await older.close()  # type: ignore[no-untyped-call]  # the client has no types
            del self._replaced[:-1]
            return True


async def _headers(api: "ApiClient") -> dict[str, str]:
    headers = {"User-Agent": _USER_AGENT, "Accept": "application/json, */*"}
    await api.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
    return headers


def decode(body: bytes, type_: type[T]) -> T:
    """Raises KubernetesError for what is not of this form."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.DecodeError as error:
        raise KubernetesError(0, "Unreadable", f"an object of another form: {error}") from error


async def _pieces(answer: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
    with _silence_as_error():
        async for piece in answer.content.iter_any():
            yield piece


@contextmanager
def _silence_as_error() -> Iterator[None]:
    """Whatever prevents an answer, as KubernetesUnavailable."""
    import aiohttp

    try:
        yield
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        reason = "Timeout" if isinstance(error, TimeoutError) else "Unreachable"
        text = str(error) or type(error).__name__
        raise KubernetesUnavailable(
            0, reason, f"the cluster's API does not answer: {text}"
        ) from error
