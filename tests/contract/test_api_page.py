"""docs/api.md against the routes and the error table."""

import re

import pytest

from schemas.errors import EXIT_CODE, HTTP_STATUS, ErrorCode
from services.gateway.app import API_ROUTES
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text()


@pytest.mark.parametrize("code", ErrorCode)
def test_the_page_has_the_status_and_exit_code_of_every_error(code: ErrorCode) -> None:
    assert f"| `{code.value}` | {HTTP_STATUS[code]} | {EXIT_CODE[code]} |" in PAGE


def test_the_page_names_every_route() -> None:
    paths = {path for route in API_ROUTES for path in route.paths}
    last_parts = {re.sub(r"\{.*?\}", "", path).rstrip("/").split("/")[-1] for path in paths}

    assert [part for part in sorted(last_parts) if part not in PAGE] == []
