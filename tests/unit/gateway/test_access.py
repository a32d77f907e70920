"""Who may reach the gateway, and as whom."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas.errors import ErrorCode
from schemas.gateway.tokens import Role, TokenView
from services.gateway.domain.access import (
    Identity,
    check_csrf,
    check_host,
    check_origin,
    cookie_name,
    csrf_token_of,
    identify,
    is_stream,
    is_web_page,
    login_in,
)
from shared.errors import RefusedError
from shared.host_header import host_names, is_loopback
from shared.ids import new_id


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104  # compared, not bound
        ("::", False),
        ("192.0.2.1", False),
        ("localhost.evil.example", False),
    ],
)
def test_only_loopback_is_safe_without_tokens(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("header", ["gpu.example:8470", "GPU.example", "localhost", "[::1]:8470"])
def test_the_names_that_were_allowed_are_accepted(header: str) -> None:
    check_host(header, host_names("192.0.2.1", ["gpu.example"]))


@pytest.mark.parametrize(
    "header", [None, "", "evil.example", "localhost.evil.example", "[::1", "127.0.0.1@evil.example"]
)
def test_other_names_are_refused(header: str | None) -> None:
    with pytest.raises(RefusedError) as refused:
        check_host(header, host_names("127.0.0.1"))

    assert refused.value.code is ErrorCode.FORBIDDEN


def test_only_own_page_may_call_the_gateway() -> None:
    check_origin("http://localhost:8470", "localhost:8470")
    check_origin(None, "localhost:8470")

    for origin in ("http://localhost:9999", "https://evil.example", "null"):
        with pytest.raises(RefusedError):
            check_origin(origin, "localhost:8470")


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_token(**overrides: Any) -> TokenView:
    fields: dict[str, Any] = {
        "token_id": new_id(),
        "name": "ci",
        "role": Role.SUBMITTER,
        "namespaces": ("team-a", "team-b"),
        "created_at": NOW,
        "created_by": "ann",
    }
    return TokenView(**{**fields, **overrides})


def test_token_changes_things_of_its_namespaces() -> None:
    identity = identify(make_token(), "digest", NOW)

    assert identity.namespace_for(None) == "team-a"
    assert [may(identity, name) for name in ("team-a", "team-b", "default")] == [True, True, False]


@pytest.mark.parametrize(
    "token",
    [
        None,
        make_token(revoked_at=NOW + timedelta(days=1)),
        make_token(expires_at=NOW),
        make_token(expires_at=NOW + timedelta(days=1), revoked_at=NOW),
    ],
)
def test_unknown_revoked_or_expired_token_is_refused(token: TokenView | None) -> None:
    with pytest.raises(RefusedError) as refused:
        identify(token, "digest", NOW)

    assert refused.value.code is ErrorCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("role", "own", "other"),
    [(Role.VIEWER, False, False), (Role.SUBMITTER, True, False), (Role.ADMIN, True, True)],
)
def test_roles_decide_what_may_be_changed(role: Role, own: bool, other: bool) -> None:
    identity = Identity(role=role, namespace="team-a")

    assert may(identity, "team-a") is own
    assert may(identity, "team-b") is other


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER])
def test_shared_things_are_changed_by_admins(role: Role) -> None:
    Identity(role=Role.ADMIN).require_role(Role.ADMIN)

    with pytest.raises(RefusedError) as refused:
        Identity(role=role).require_role(Role.ADMIN)

    assert refused.value.code is ErrorCode.FORBIDDEN


def may(identity: Identity, namespace: str) -> bool:
    try:
        identity.require(namespace)
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize(
    ("role", "asked", "want"),
    [
        pytest.param(Role.ADMIN, None, None, id="an admin everything"),
        pytest.param(Role.ADMIN, "b", "b", id="an admin one"),
        pytest.param(Role.SUBMITTER, None, "a", id="a user its own"),
        pytest.param(Role.SUBMITTER, "a", "a", id="a user its own by name"),
    ],
)
def test_a_list_is_of_what_its_caller_may_read(
    role: Role, asked: str | None, want: str | None
) -> None:
    identity = Identity(role=role, namespace="a")

    assert identity.namespace_to_read(asked) == want


def test_a_list_of_a_foreign_namespace_is_refused() -> None:
    identity = Identity(role=Role.SUBMITTER, namespace="a")

    with pytest.raises(RefusedError) as refused:
        identity.namespace_to_read("b")

    assert refused.value.code is ErrorCode.FORBIDDEN


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:8080", "gpusteward_8080"),
        ("[::1]:8080", "gpusteward_8080"),
        ("localhost", "gpusteward"),
        ("[::1]", "gpusteward"),
        ("localhost:\N{SUPERSCRIPT TWO}", "gpusteward"),
        ("localhost:", "gpusteward"),
        ("", "gpusteward"),
        (None, "gpusteward"),
    ],
)
def test_cookie_is_named_by_port(host: str | None, name: str) -> None:
    assert cookie_name(host) == name


@pytest.mark.parametrize(
    ("kind", "method", "path", "page", "stream"),
    [
        ("http", "GET", "/", True, False),
        ("http", "GET", "/tasks/1", True, False),
        ("http", "GET", "/apiary", True, False),
        ("http", "GET", "//api/v1/nodes", False, False),
        ("http", "GET", "/api/v1/nodes", False, False),
        ("http", "GET", "/sse/events", False, True),
        ("http", "POST", "/tasks", False, False),
        ("http", "HEAD", "/", False, False),
        ("websocket", "GET", "/ws/events", False, True),
        ("websocket", "GET", "/", False, True),
    ],
)
def test_page_and_stream_requests_are_recognised(
    kind: str, method: str, path: str, page: bool, stream: bool
) -> None:
    scope = {"type": kind, "method": method, "path": path}

    assert (is_web_page(scope), is_stream(scope)) == (page, stream)


@pytest.mark.parametrize(
    ("cookies", "secret"),
    [
        ("gpusteward_80=s", "s"),
        ("other=1; gpusteward_80=s=t; more=2", "s=t"),
        ("gpusteward_80=; gpusteward_80=s", "s"),
        ("gpusteward=s; gpusteward_81=s", None),
        ("gpusteward_80", None),
        ("", None),
    ],
)
def test_a_login_is_found_among_other_cookies(cookies: str, secret: str | None) -> None:
    assert login_in(cookies, "localhost:80") == secret


def test_change_by_cookie_needs_page_secret() -> None:
    identity = Identity(role=Role.ADMIN, login_sha256="a")

    check_csrf(identity, csrf_token_of("a"))
    for given, found in ((csrf_token_of("b"), "another"), ("a", "another"), (None, "none")):
        with pytest.raises(RefusedError, match=f"found {found}") as refused:
            check_csrf(identity, given)
        assert refused.value.code is ErrorCode.FORBIDDEN


def test_token_acts_in_its_first_namespace() -> None:
    identity = identify(make_token(namespaces=("a", "b", "c")), "digest", NOW)

    assert (identity.namespace, identity.further_namespaces) == ("a", ("b", "c"))
    assert identity.namespaces == ("a", "b", "c")
