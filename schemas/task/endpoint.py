"""A server that runs already, which a task measures as it is."""

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from schemas.base import END, Count, NodeId, PositiveInt, SecretName, line
from schemas.gpus.device_grant import DeviceGrant
from schemas.task.part import TaskPart

URL_PATTERN: Final = rf"^https?://[^\s/?#@]+(/[^\s?#@]*)?{END}"
URL_FORM: Final = "http:// or https://, a host, and what stands before /v1, if anything"
EndpointUrl = Annotated[str, Meta(pattern=URL_PATTERN, max_length=512, description=URL_FORM)]
# `EndpointConfig` holds a lone one to the pattern: in a union with a list, msgspec 0.22 frees a
# text's pattern each time that it is done with the type, and so ends the process.
EndpointUrls = (
    Annotated[
        str,
        Meta(max_length=512, description=URL_FORM, extra_json_schema={"pattern": URL_PATTERN}),
    ]
    | Annotated[tuple[EndpointUrl, ...], Meta(min_length=1, max_length=64)]
)
ContainerIdStart = Annotated[
    str,
    Meta(
        pattern=rf"^[0-9a-f]{{12,64}}{END}",
        description="12 or more hexadecimal digits, of which a container's id begins",
    ),
]
Rate = Annotated[float, Meta(gt=0, le=100_000)]


class EndpointConfig(TaskPart, frozen=True, kw_only=True):
    """Where the server answers: one address, or a list to compare, each measured alone.

    `api_key` is the name of a secret of the task's `secrets`, sent as a bearer token. No load has
    more than `max_concurrency` requests in flight, nor sends more than `max_requests_per_second`.

    `node` is the agent's node on which the server runs: what its GPUs read belongs to the
    experiment then. Which of its GPUs follows from `gpu_indices`, from the `pod` (its name) or the
    `container` (the beginning of its id) that has them; without any of these all of the node's are
    meant.
    """

    url: EndpointUrls
    api_key: SecretName | None = None
    max_concurrency: PositiveInt | None = None
    max_requests_per_second: Rate | None = None
    node: NodeId | None = None
    gpu_indices: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    pod: Annotated[str, line(min_length=1, max_length=253)] | None = None
    container: ContainerIdStart | None = None

    def __post_init__(self) -> None:
        for url in (self.url,) if isinstance(self.url, str) else self.url:
            if not is_server_url(url):
                raise ValueError(f"Expected `str` matching regex {URL_PATTERN!r} - at `$.url`")


def is_server_url(url: str) -> bool:
    """Return True if it has the form of a URL, and a host and a port that can be read."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host) and re.search(URL_PATTERN, url) is not None


class EngineEndpoint(Struct, frozen=True, kw_only=True):
    """The server that one experiment measures, with its GPUs where an agent sees them.

    `devices` are read, not granted: whoever runs the server holds them.
    """

    url: str
    api_key: SecretName | None = None
    devices: tuple[DeviceGrant, ...] = ()
