"""Groups, names and memberships to roles; and what an owner, or a person's token, has of them."""

from typing import Any

import msgspec
import pytest

from schemas.gateway.tokens import Role, TokenRequest
from services.gateway.domain.access import Identity
from services.gateway.domain.rights import Membership, Rights, RoleMapping, rights_of
from services.gateway.domain.token_rules import check_may_make, identity_of, person_of_token
from shared.errors import RefusedError
from shared.ids import new_id

MAPPING = msgspec.convert(
    {
        "rule": [
            {"group": "admins", "role": "admin"},
            {"group": "team-a", "role": "submitter", "namespaces": ["a", "shared"]},
            {"group": "leads", "role": "owner", "namespaces": ["a"]},
            {"user": "eve", "role": "viewer", "namespaces": ["b"]},
            {"group": "*", "role": "viewer", "namespaces": ["shared"]},
        ]
    },
    RoleMapping,
)
OWNER = Identity(
    role=Role.OWNER, namespace="a", further_namespaces=("b",), roles={"b": Role.VIEWER}, name="o"
)


@pytest.mark.parametrize(
    ("name", "groups", "roles", "is_admin"),
    [
        ("ada", ["team-a"], {"a": "submitter", "shared": "submitter"}, False),
        ("ada", ["leads", "team-a"], {"a": "owner", "shared": "submitter"}, False),
        ("eve", [], {"b": "viewer", "shared": "viewer"}, False),
        ("root", ["admins"], {"shared": "viewer"}, True),
        ("admins", [], {"shared": "viewer"}, False),
    ],
)
def test_highest_role_of_all_rules_counts(
    name: str, groups: list[str], roles: dict[str, str], is_admin: bool
) -> None:
    rights = rights_of(name, groups, MAPPING, ())

    assert rights == Rights(roles=roles, is_admin=is_admin)  # type: ignore[arg-type]


def test_membership_adds_to_what_groups_give() -> None:
    memberships = [Membership("a", Role.VIEWER), Membership("c", Role.OWNER)]

    rights = rights_of("ada", ["team-a"], MAPPING, memberships)

    assert rights.roles == {"a": "submitter", "shared": "submitter", "c": "owner"}
    assert (rights.role, rights.namespaces) == (Role.OWNER, ("a", "shared", "c"))


def test_nobody_without_a_rule_has_rights() -> None:
    assert not rights_of("ada", ["else"], RoleMapping(), ())


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"role": "viewer", "namespaces": ["a"]}, "either a group or a user"),
        ({"role": "viewer", "group": "g", "user": "u", "namespaces": ["a"]}, "either a group"),
        ({"role": "viewer", "group": "g"}, "expected namespaces for the role viewer"),
        ({"role": "root", "group": "g"}, "Invalid enum value 'root'"),
        ({"role": "viewer", "group": "g", "namespaces": ["A b"]}, "namespaces"),
        ({"role": "admin", "group": "g", "namespace": "a"}, "unknown field `namespace`"),
    ],
)
def test_rule_that_says_nothing_is_refused(rule: dict[str, Any], sentence: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=sentence):
        msgspec.convert({"rule": [rule]}, RoleMapping)


def test_each_namespace_has_a_role_of_its_own() -> None:
    rights = rights_of("ada", ["leads", "team-a"], MAPPING, ())
    identity = identity_of("ada", rights, "id.example", Identity(role=Role.VIEWER))

    identity.require_owner("a")
    identity.require("shared")
    assert identity.owned == ("a",)
    for namespace in ("shared", "b", "c"):
        with pytest.raises(RefusedError, match="expected an owner of namespace"):
            identity.require_owner(namespace)


def test_viewer_of_a_namespace_changes_nothing_there() -> None:
    OWNER.require("a")
    assert OWNER.reads("b")
    with pytest.raises(RefusedError, match="found a viewer of it"):
        OWNER.require("b")
    with pytest.raises(RefusedError, match="expected an admin's token, found an owner's"):
        OWNER.require_role(Role.ADMIN)


def request_for(role: str, *namespaces: str, personal: bool = False) -> TokenRequest:
    return TokenRequest(name="ci", role=Role(role), namespaces=namespaces, personal=personal)


@pytest.mark.parametrize(
    ("request_", "may"),
    [
        (request_for("submitter", "a"), True),
        (request_for("owner", "a"), True),
        (request_for("admin", "a"), False),
        (request_for("viewer", "b"), False),
        (request_for("viewer", "a", "b"), False),
        (request_for("viewer", "c"), False),
    ],
)
def test_owner_makes_tokens_of_its_namespaces_alone(request_: TokenRequest, may: bool) -> None:
    if may:
        check_may_make(request_, OWNER)
        assert person_of_token(request_, OWNER) == "a/ci"
    else:
        with pytest.raises(RefusedError):
            check_may_make(request_, OWNER)


def test_personal_token_has_no_more_than_its_person() -> None:
    ada = Identity(
        role=Role.SUBMITTER, namespace="a", name="ada", person="ada", sign_in_id=new_id()
    )

    check_may_make(request_for("submitter", "a", personal=True), ada)
    assert person_of_token(request_for("viewer", "a", personal=True), ada) == "ada"
    for more in (
        request_for("owner", "a", personal=True),
        request_for("viewer", "b", personal=True),
        request_for("viewer", "a"),
    ):
        with pytest.raises(RefusedError):
            check_may_make(more, ada)
    with pytest.raises(RefusedError, match="signed in at the provider"):
        check_may_make(request_for("viewer", "a", personal=True), OWNER)


@pytest.mark.parametrize(
    ("rights", "role", "namespaces", "left"),
    [
        (Rights(roles={"a": Role.OWNER}), "submitter", ["a"], {"a": "submitter"}),
        (Rights(roles={"a": Role.VIEWER}), "submitter", ["a"], {"a": "viewer"}),
        (Rights(roles={"b": Role.OWNER}), "submitter", ["a"], {}),
        (Rights(is_admin=True), "submitter", ["a"], {"a": "submitter"}),
        (Rights(roles={"a": Role.OWNER}), "admin", ["a"], {"a": "owner"}),
    ],
)
def test_token_is_capped_by_what_its_person_has_now(
    rights: Rights, role: str, namespaces: list[str], left: dict[str, str]
) -> None:
    capped = rights.cap_by(Role(role), namespaces)

    assert (capped.roles, capped.is_admin) == (left, False)
    assert bool(capped) is bool(left)
