"""What a provider's token has to say: each thing that does not count is refused with a sentence."""

from typing import Any

import pytest

from services.gateway.domain.claims import (
    LEEWAY_SECONDS,
    Expectation,
    check_claims,
    groups_in,
    person_in,
)
from shared.errors import RefusedError

NOW = 1_800_000_000.0
EXPECTED = Expectation(issuer="https://id.example", audience="us", nonce="n")
GOOD: dict[str, Any] = {
    "iss": "https://id.example",
    "aud": "us",
    "sub": "7",
    "exp": NOW + 60,
    "iat": NOW,
    "nonce": "n",
}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"aud": ["them", "us"]},
        {"aud": ["us"], "azp": "us"},
        {"exp": NOW - LEEWAY_SECONDS + 1},
        {"iat": NOW + LEEWAY_SECONDS, "nbf": NOW + LEEWAY_SECONDS},
    ],
)
def test_token_of_the_provider_for_us_counts(change: dict[str, Any]) -> None:
    check_claims({**GOOD, **change}, EXPECTED, NOW)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"iss": "https://evil.example"}, "expected a token of https://id.example, found one of"),
        ({"iss": None}, "found one of nobody"),
        ({"aud": "them"}, "expected a token for us, found one for them"),
        ({"aud": []}, "found one for nobody"),
        ({"aud": "us", "azp": "them"}, "asked for by them"),
        ({"exp": NOW - LEEWAY_SECONDS}, "found one that expired 60 s ago"),
        ({"exp": None}, "expected a token with an end"),
        ({"exp": "never"}, "expected a number of seconds as `exp`"),
        ({"exp": True}, "expected a number of seconds as `exp`"),
        ({"nbf": NOW + LEEWAY_SECONDS + 1}, "does so in 61 s (`nbf`)"),
        ({"iat": NOW + LEEWAY_SECONDS + 1}, "does so in 61 s (`iat`)"),
        ({"sub": ""}, "expected a token of somebody"),
        ({"nonce": "other"}, "found one with another nonce"),
        ({"nonce": None}, "found one with another nonce"),
    ],
)
def test_token_that_does_not_count_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_claims({**GOOD, **change}, EXPECTED, NOW)

    assert sentence in refused.value.message
    assert refused.value.code == "unauthenticated"


@pytest.mark.parametrize("kind", ["ID", "Refresh", "Logout"])
def test_another_kind_of_token_is_no_access_token(kind: str) -> None:
    expected = Expectation(issuer="https://id.example", audience="us", is_access_token=True)

    check_claims({**GOOD, "typ": "Bearer", "azp": "a-program"}, expected, NOW)
    with pytest.raises(RefusedError, match="expected an access token"):
        check_claims({**GOOD, "typ": kind}, expected, NOW)


@pytest.mark.parametrize(
    ("claims", "claim", "name"),
    [
        ({"preferred_username": "ada", "email": "a@b.c"}, "", "ada"),
        ({"email": "a@b.c"}, "", "a@b.c"),
        ({"email": "a@b.c", "email_verified": False}, "", "7"),
        ({}, "", "7"),
        ({"preferred_username": "ada", "upn": "ada@corp"}, "upn", "ada@corp"),
    ],
)
def test_name_is_the_first_claim_that_is_there(
    claims: dict[str, Any], claim: str, name: str
) -> None:
    assert person_in({**GOOD, **claims}, claim, "groups").name == name


@pytest.mark.parametrize("name", ["a\nb", "a\u202eb", "x" * 201])
def test_name_that_people_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="one line"):
        person_in({**GOOD, "preferred_username": name}, "", "groups")


def test_missing_name_claim_says_which_setting() -> None:
    with pytest.raises(RefusedError, match="GPUSTEWARD_GATEWAY_OIDC_NAME_CLAIM"):
        person_in(GOOD, "upn", "groups")


@pytest.mark.parametrize(
    ("claims", "claim", "groups"),
    [
        ({"groups": ["a", "b", "a", 7, ""]}, "groups", ("a", "b")),
        ({"groups": "a"}, "groups", ("a",)),
        ({"groups": {"a": 1}}, "groups", ()),
        ({}, "groups", ()),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", ("a",)),
        ({"https://x.y/groups": ["a"]}, "https://x.y/groups", ("a",)),
    ],
)
def test_groups_are_texts_of_a_list(
    claims: dict[str, Any], claim: str, groups: tuple[str, ...]
) -> None:
    assert groups_in(claims, claim) == groups


def test_groups_left_out_for_being_many_are_refused() -> None:
    with pytest.raises(RefusedError, match="too many"):
        groups_in({"_claim_names": {"groups": "src1"}}, "groups")
