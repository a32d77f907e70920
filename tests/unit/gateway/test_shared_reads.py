"""Clients with the same rights who ask the same at once get the same bytes, and others never."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from schemas.gateway import endpoints
from schemas.gateway.tokens import Role
from services.gateway.domain.access import FULL_ACCESS, Identity
from services.gateway.http.conditional_reads import ROUTE, ConditionalReads, tag_of

TASKS = endpoints.LIST_TASKS.address()
ENGINES = endpoints.LIST_ENGINES.address()


@dataclass
class Api:
    """Answers with who asked, as often as it is asked; a foreign namespace with a refusal."""

    answered: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, _: Any, send: Any) -> None:
        await asyncio.sleep(0.01)
        name = scope["state"]["identity"].namespace
        self.answered.append(name)
        scope[ROUTE] = scope["path"]
        status = 403 if b"foreign" in scope["query_string"] else 200
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": f'"{name}"'.encode()})


@dataclass
class Client:
    """Asks as somebody, and keeps what it got."""

    identity: Identity = FULL_ACCESS
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    async def get(
        self, reads: ConditionalReads, path: str, query: bytes = b"", known: bytes = b""
    ) -> None:
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query,
            "headers": [(b"if-none-match", known)] if known else [],
            "state": {"identity": self.identity},
        }
        await reads(scope, self._receive, self._send)
        assert scope[ROUTE] == path

    async def _receive(self) -> dict[str, Any]:
        raise AssertionError("a read has no body")

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.body += message["body"]


def a_member(namespace: str) -> Identity:
    return Identity(role=Role.VIEWER, namespace=namespace, roles={namespace: Role.OWNER})


async def test_alike_clients_share_an_answer_and_a_304() -> None:
    api, clients = Api(), [Client(a_member("a")) for _ in range(5)]
    reads, tag = ConditionalReads(api), tag_of(b'"a"')

    await asyncio.gather(
        *(client.get(reads, TASKS, b"limit=5") for client in clients[:4]),
        clients[4].get(reads, TASKS, b"limit=5", known=tag),
    )

    assert api.answered == ["a"]
    assert [(each.status, each.body) for each in clients] == [(200, b'"a"')] * 4 + [(304, b"")]
    assert {each.headers[b"etag"] for each in clients} == {tag}


@pytest.mark.parametrize(
    "other",
    [a_member("b"), Identity(role=Role.VIEWER, namespace="a"), FULL_ACCESS],
    ids=["namespace", "roles", "role"],
)
async def test_others_are_answered_for_themselves(other: Identity) -> None:
    api, mine, theirs = Api(), Client(a_member("a")), Client(other)
    reads = ConditionalReads(api)

    await asyncio.gather(mine.get(reads, TASKS), theirs.get(reads, TASKS))

    assert api.answered == ["a", other.namespace]
    assert (mine.body, theirs.body) == (b'"a"', f'"{other.namespace}"'.encode())


@pytest.mark.parametrize(
    ("path", "other_query"), [(TASKS, b"limit=7"), (ENGINES, b"")], ids=["query", "not shared"]
)
async def test_other_questions_are_answered_apart(path: str, other_query: bytes) -> None:
    api = Api()
    reads = ConditionalReads(api)

    await asyncio.gather(Client().get(reads, path), Client().get(reads, path, other_query))

    assert len(api.answered) == 2


async def test_refusal_reaches_all_without_a_tag() -> None:
    api, clients = Api(), (Client(), Client())
    reads = ConditionalReads(api)

    await asyncio.gather(*(client.get(reads, TASKS, b"namespace=foreign") for client in clients))

    assert [each.status for each in clients] == [403, 403]
    assert not any(b"etag" in each.headers for each in clients)
    assert len(api.answered) == 1
