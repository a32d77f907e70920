"""docs/api.md against the routes and the error table."""

import re

from schemas.errors import EXIT_CODE, HTTP_STATUS, ErrorCode
from tests.support.paths import ROOT
from tests.support.tables import for_each

PAGE = (ROOT / "docs" / "api.md").read_text()


@for_each("code", ErrorCode)
def test_the_page_has_the_status_and_exit_code_of_every_error(code: ErrorCode) -> None:
    assert f"| `{code.value}` | {HTTP_STATUS[code]} | {EXIT_CODE[code]} |" in PAGE


def test_the_page_names_every_route() -> None:
    # Takes a second to import, in every process that collects tests.
    from services.gateway.app import API_ROUTES

    paths = {path for route in API_ROUTES for path in route.paths}
    last_parts = {re.sub(r"\{.*?\}", "", path).rstrip("/").split("/")[-1] for path in paths}

    assert [part for part in sorted(last_parts) if part not in PAGE] == []
