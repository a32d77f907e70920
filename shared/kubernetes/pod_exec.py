"""Runs a program in a container of a pod, as `kubectl exec` does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from shared.kubernetes.client import KubernetesClient
from shared.kubernetes.errors import KubernetesUnavailable
from shared.kubernetes.kinds import PODS
from shared.waiting import within

if TYPE_CHECKING:
    import aiohttp

_PROTOCOL: Final = "v4.channel.k8s.io"
_STDOUT, _STDERR, _STATUS = 1, 2, 3  # the first byte of every frame
_EXIT_CODE: Final = "ExitCode"
MAX_FRAME_BYTES: Final = 1 << 20


class PodExec(Struct, frozen=True):
    """`exit_code` is None where the program could not be started, for the reason in `message`."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    message: str = ""


class _Cause(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(Struct, frozen=True):
    causes: list[_Cause] = []


class _Status(Struct, frozen=True):
    status: str = ""
    message: str = ""
    details: _Details = _Details()


async def run_in_pod(
    client: KubernetesClient,
    namespace: str,
    pod: str,
    container: str,
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    largest_bytes: int,
) -> PodExec:
    """Run a command in a container; return its exit and at most `largest_bytes` of each stream.

    Raises KubernetesError, and KubernetesUnavailable also where it takes too long.
    """
    params = [("container", container), ("stdout", "true"), ("stderr", "true")]
    params += [("command", argument) for argument in argv]
    path = PODS.path(namespace, pod, subresource="exec")
    try:
        async with (
            within(timeout_seconds),
            client.websocket(
                path, params=params, protocol=_PROTOCOL, largest_bytes=MAX_FRAME_BYTES
            ) as connection,
        ):
            return await _collect(connection, largest_bytes)
    except TimeoutError as error:
        raise KubernetesUnavailable(
            0, "Timeout", f"{argv[0]} in {namespace}/{pod} took more than {timeout_seconds:g} s"
        ) from error


async def _collect(connection: "aiohttp.ClientWebSocketResponse", largest_bytes: int) -> PodExec:
    written = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}
    async for frame in connection:
        data: Any = frame.data
        if isinstance(data, bytes) and data[:1] and (stream := written.get(data[0])) is not None:
            stream += data[1 : 1 + largest_bytes - len(stream)]
    try:
        status = msgspec.json.decode(written[_STATUS], type=_Status)
    except msgspec.DecodeError:
        status = _Status(message="the connection ended before the program did")
    code = 0 if status.status == "Success" else None
    for cause in status.details.causes:
        if cause.reason == _EXIT_CODE and cause.message.isdecimal():
            code = int(cause.message)
    return PodExec(code, bytes(written[_STDOUT]), bytes(written[_STDERR]), status.message)
