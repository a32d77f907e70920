"""The table of the API's operations against routes, documents and what is spelled elsewhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from msgspec import Struct

from schemas.base import API
from schemas.errors import EXIT_CODE, HTTP_STATUS, ErrorCode
from schemas.gateway.endpoint import Endpoint
from schemas.gateway.endpoints import ENDPOINTS
from schemas.gateway.tokens import Role
from tests.support.paths import ROOT
from tests.support.tables import for_each

REFERENCE = (ROOT / "docs" / "reference" / "api.md").read_text()
PAGE = ROOT / "services" / "gateway" / "web" / "src"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
IN_API = {name: row for name, row in ENDPOINTS.items() if row.root}
FIRST_PARTS = "|".join(sorted({row.path.split("/")[1] for row in IN_API.values()}))
ADDRESS = re.compile(rf"{API}|/(ws|sse)/|/({FIRST_PARTS})([/?]|$)")
# They name addresses of a Kubernetes API and, the last two, of the web page.
OTHERS = {
    "services/cli/doctor/cluster_report.py",
    "services/telemetry/kubernetes/cuda_labels.py",
    "services/telemetry/kubernetes/pod_facts.py",
    "shared/accelerator_rules/scheduler_extenders.py",
    "services/cli/display/task_outcome.py",
    "services/gateway/routes/platform/sign_in_pages.py",
}
# Routes that answer with files, of the web page and of the page of the API; and those that a
# browser passes on its way to the provider and back.
FILES = {"read_page", "show_api", "read_file", "start_sign_in", "finish_sign_in"}


@pytest.fixture(scope="module")
def app() -> Any:
    # Takes a second to import, in every process that collects tests.
    from services.gateway.app import create_app
    from services.gateway.context import Gateway

    return create_app(cast(Gateway, None))


@pytest.fixture(scope="module")
def document(app: Any) -> dict[str, Any]:
    from services.gateway.http.openapi import StructSchemas

    structs = next(plugin for plugin in app.plugins if isinstance(plugin, StructSchemas))
    return structs.complete(app.openapi_schema.to_schema())


def test_every_route_has_a_row_and_every_row_a_route(app: Any) -> None:
    from litestar.handlers import WebsocketRouteHandler

    from services.gateway.routes.common import ENDPOINT

    rows: dict[str, Endpoint[Any] | None] = {}
    for handler in handlers_of(app):
        if isinstance(handler, WebsocketRouteHandler):
            by_path = (row for row in ENDPOINTS.values() if row.path in handler.paths)
            rows[handler.handler_name] = next(by_path, None)
        else:
            rows[handler.handler_name] = handler.opt.get(ENDPOINT)

    assert {name: row for name, row in rows.items() if name not in FILES} == ENDPOINTS


def handlers_of(app: Any) -> Iterator[Any]:
    """Yield the gateway's own handlers."""
    for route in app.routes:
        for handler in getattr(route, "route_handlers", None) or [route.route_handler]:
            if handler.fn.__module__.startswith("services."):
                yield handler


@for_each("name", list(IN_API))
def test_document_has_what_the_row_says(document: dict[str, Any], name: str) -> None:
    row = ENDPOINTS[name]
    operation = document["paths"][API + row.path][row.method.lower()]
    query = [part["name"] for part in operation.get("parameters", ()) if part["in"] == "query"]
    success = {status: part for status, part in operation["responses"].items() if status < "300"}

    assert query == list(row.query)
    assert list(success) == [str(row.status)]
    assert set(references_in(success)) == structs_of(row.answer)
    assert set(references_in(operation.get("requestBody"))) == structs_of(row.body)


def references_in(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for inner in part.values():
            yield from references_in(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from references_in(inner)


def structs_of(kind: Any) -> set[str]:
    members = [member for member in get_args(kind) or (kind,) if isinstance(member, type)]
    return {member.__name__ for member in members if issubclass(member, Struct)}


def test_only_changes_are_audited_and_no_viewer_deletes() -> None:
    audited = {name for name, row in ENDPOINTS.items() if row.is_audited}
    reads = {name for name, row in ENDPOINTS.items() if row.method == "GET"}
    deletions = {name for name, row in ENDPOINTS.items() if row.method == "DELETE"}

    assert audited & reads == set()
    # A token of one's own is everybody's to revoke.
    assert {name for name in deletions if ENDPOINTS[name].role is Role.VIEWER} == {"revoke_token"}


def test_no_service_or_client_spells_an_address_of_the_api() -> None:
    files = [path for folder in ("services", "shared") for path in (ROOT / folder).rglob("*.py")]
    addresses = {
        name: texts
        for path in files
        if "node_modules" not in path.parts
        and (name := str(path.relative_to(ROOT))) not in OTHERS
        and (texts := addresses_in(path))
    }

    assert addresses == {}


def addresses_in(path: Path) -> set[str]:
    """Return the strings of a module that begin as an address does, without docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and id(node) not in docstrings
    }
    return {text for text in texts if isinstance(text, str) and ADDRESS.match(text)}


def test_web_page_spells_no_address_of_the_api() -> None:
    files = [path for path in PAGE.rglob("*.ts*") if ".test." not in path.name]
    addresses = {
        str(path.relative_to(PAGE)): texts
        for path in files
        if "testing" not in path.parts
        and (texts := re.findall(rf"[\"'`](?:{API}|/ws/|/sse/)[^\"'`]*", code_of(path)))
    }

    assert addresses == {}


def code_of(path: Path) -> str:
    return COMMENT.sub("", path.read_text())


def test_reference_names_every_operation_and_no_other() -> None:
    names = {f"{row.method} {row.path}" for row in ENDPOINTS.values()}
    in_api = {f"{row.method} {row.path}" for row in IN_API.values()}
    mentions = set(re.findall(r"`((?:GET|POST|DELETE) /[^\s`?]*)[`?]", REFERENCE))

    assert sorted(in_api - mentions) == []
    outside = ["GET /", "GET /schema/openapi.json"]
    assert sorted(mentions - names) == [*outside, "GET /sign-in/callback", "GET /sign-in/start"]


@for_each("code", ErrorCode)
def test_reference_has_status_and_exit_code_of_errors(code: ErrorCode) -> None:
    assert f"| `{code.value}` | {HTTP_STATUS[code]} | {EXIT_CODE[code]} |" in REFERENCE
