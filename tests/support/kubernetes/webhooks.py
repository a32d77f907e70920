"""Admission webhooks on loopback: one that never answers, one that refuses, one that changes."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from tests.support.http_server import last_connections_made, serving
from tests.support.kubernetes.api import Object
from tests.support.kubernetes.control_plane import ControlPlane

NAME: Final = "admission.test.gpusteward.io"
CHANGES: Final = ("CREATE", "UPDATE")


@asynccontextmanager
async def hanging_webhook(
    control_plane: ControlPlane,
    *,
    resources: Mapping[str, Sequence[str]],
    timeout_seconds: int = 1,
    ignored: bool = False,
) -> AsyncIterator[None]:
    """Meanwhile every creation or change of these resources, by API group, waits for a webhook that
    never answers, and fails then; `ignored`: goes through then.
    """
    connections: list[asyncio.BaseTransport] = []

    class NeverAnswers(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connections.append(transport)

    server = await asyncio.get_running_loop().create_server(NeverAnswers, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    policy = "Ignore" if ignored else "Fail"
    try:
        async with _registered(control_plane, port, resources, timeout_seconds, policy):
            yield
    finally:
        server.close()
        await last_connections_made()
        for each in connections:
            each.close()
        await server.wait_closed()
        await asyncio.sleep(0)  # in which they are closed


@asynccontextmanager
async def refusing_webhook(
    control_plane: ControlPlane, message: str, *, resources: Mapping[str, Sequence[str]]
) -> AsyncIterator[list[Object]]:
    """Meanwhile every creation or change of these resources is refused; the reviews that it got."""
    refused = {"allowed": False, "status": {"message": message}}
    async with _answering(control_plane, lambda _: refused, resources, "Validating") as reviews:
        yield reviews


@asynccontextmanager
async def gating_webhook(control_plane: ControlPlane, gate: str) -> AsyncIterator[list[Object]]:
    """Meanwhile every new pod gets this scheduling gate, as Kueue does it."""

    def gated(_: Object) -> Object:
        patch = [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": gate}]}]
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}

    # Of creations alone: an apiserver calls a webhook for a moment after its configuration is gone.
    async with _answering(
        control_plane, gated, {"": ["pods"]}, "Mutating", operations=("CREATE",)
    ) as reviews:
        yield reviews


@asynccontextmanager
async def _answering(
    control_plane: ControlPlane,
    answer_to: Callable[[Object], Object],
    resources: Mapping[str, Sequence[str]],
    kind: str,
    operations: Sequence[str] = CHANGES,
) -> AsyncIterator[list[Object]]:
    """The reviews that it got."""
    reviews: list[Object] = []

    async def review_it(request: web.Request) -> web.Response:
        review = await request.json()
        reviews.append(review)
        answer = {"uid": review["request"]["uid"], **answer_to(review)}
        return web.json_response({**review, "response": answer})

    app = web.Application()
    app.router.add_post("/", review_it)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(control_plane.ca_file, control_plane.key_file)
    async with serving(app, tls=context) as address:
        port = int(address.rpartition(":")[2])
        async with _registered(
            control_plane, port, resources, 5, "Fail", kind=kind, operations=operations
        ):
            yield reviews


@asynccontextmanager
async def _registered(
    control_plane: ControlPlane,
    port: int,
    resources: Mapping[str, Sequence[str]],
    timeout_seconds: int,
    policy: str,
    *,
    kind: str = "Validating",
    operations: Sequence[str] = CHANGES,
) -> AsyncIterator[None]:
    bundle = base64.b64encode(control_plane.ca_file.read_bytes()).decode()
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": list(operations),
            "resources": list(names),
        }
        for group, names in resources.items()
    ]
    path = f"apis/admissionregistration.k8s.io/v1/{kind.lower()}webhookconfigurations"
    async with control_plane.api() as api:
        await api.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{kind}WebhookConfiguration",
                "metadata": {"name": NAME},
                "webhooks": [
                    {
                        "name": NAME,
                        "clientConfig": {
                            "url": f"https://127.0.0.1:{port}/",
                            "caBundle": bundle,
                        },
                        "rules": rules,
                        "sideEffects": "None",
                        "admissionReviewVersions": ["v1"],
                        "timeoutSeconds": timeout_seconds,
                        "failurePolicy": policy,
                    }
                ],
            }
        )
        try:
            yield
        finally:
            await api.delete(f"{path}/{NAME}")
