"""What a token of an OpenID provider says, once its signature was verified: does it count here, and
for whom. Every refusal is a sentence.
"""

import hmac
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from schemas.base import LINE_PATTERN
from services.gateway.domain.access import authentication_error

LEEWAY_SECONDS: Final = 60.0  # clocks differ
MAX_NAME_CHARACTERS: Final = 200
MAX_GROUPS: Final = 2000
DEFAULT_NAME_CLAIMS: Final = ("preferred_username", "email", "sub")
# As Keycloak writes into tokens that admit to nothing of ours.
OTHER_TYPES: Final = frozenset({"id", "refresh", "offline", "logout"})

Claims = Mapping[str, Any]


class Expectation(Struct, frozen=True, kw_only=True):
    """What a token has to say: whose it is, for whom, and what we gave the browser along."""

    issuer: str
    audience: str
    nonce: str | None = None
    is_access_token: bool = False


class Person(Struct, frozen=True, kw_only=True):
    """Whom a provider says: the lasting id, the name that people know, the groups."""

    subject: str
    name: str
    groups: tuple[str, ...] = ()


def check_claims(claims: Claims, expectation: Expectation, now_seconds: float) -> None:
    """Raises RefusedError for a token that does not count here and now."""
    issuer = claims.get("iss")
    if issuer != expectation.issuer:
        raise authentication_error(
            f"expected a token of {expectation.issuer}, found one of {issuer or 'nobody'}"
        )
    _check_audience(claims, expectation)
    _check_times(claims, now_seconds)
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise authentication_error("expected a token of somebody (`sub`), found one of nobody")
    if expectation.nonce is not None:
        nonce = claims.get("nonce")
        is_ours = isinstance(nonce, str) and hmac.compare_digest(
            nonce.encode(), expectation.nonce.encode()
        )
        if not is_ours:
            raise authentication_error(
                "expected the token of this sign-in, found one with another nonce; sign in again"
            )
    kind = str(claims.get("typ", "")).lower()
    if expectation.is_access_token and kind in OTHER_TYPES:
        raise authentication_error(
            f"expected an access token, found one of the type {claims['typ']}"
        )


def _check_audience(claims: Claims, expectation: Expectation) -> None:
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if expectation.audience not in audiences:
        receivers = ", ".join(str(receiver) for receiver in audiences if receiver) or "nobody"
        raise authentication_error(
            f"expected a token for {expectation.audience}, found one for {receivers}"
        )
    if expectation.is_access_token:
        return
    party = claims.get("azp", expectation.audience)
    if party != expectation.audience:
        raise authentication_error(
            f"expected a token that was asked for by {expectation.audience}, found one asked for"
            f" by {party}"
        )


def _check_times(claims: Claims, now_seconds: float) -> None:
    ends_at = _seconds(claims, "exp")
    if ends_at is None:
        raise authentication_error("expected a token with an end (`exp`), found one without")
    if ends_at <= now_seconds - LEEWAY_SECONDS:
        raise authentication_error(
            f"expected a token that counts, found one that expired {now_seconds - ends_at:.0f} s"
            " ago"
        )
    for claim in ("nbf", "iat"):
        begins_at = _seconds(claims, claim)
        if begins_at is not None and begins_at > now_seconds + LEEWAY_SECONDS:
            raise authentication_error(
                f"expected a token that counts, found one that does so in"
                f" {begins_at - now_seconds:.0f} s (`{claim}`); compare the clocks of provider and"
                " gateway"
            )


def _seconds(claims: Claims, claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise authentication_error(f"expected a number of seconds as `{claim}` of a token")
    return float(value)


def person_in(claims: Claims, name_claim: str, groups_claim: str) -> Person:
    """Return whom claims are about. Raises RefusedError for a name that people cannot be shown."""
    return Person(
        subject=str(claims["sub"]),
        name=_name_in(claims, name_claim),
        groups=groups_in(claims, groups_claim),
    )


def _name_in(claims: Claims, name_claim: str) -> str:
    candidates = (name_claim,) if name_claim else DEFAULT_NAME_CLAIMS
    for claim in candidates:
        value = value_at(claims, claim)
        if claim == "email" and claims.get("email_verified") is False:
            continue
        if isinstance(value, str) and value:
            if len(value) > MAX_NAME_CHARACTERS or not re.match(LINE_PATTERN, value):
                raise authentication_error(
                    f"expected a name of one line and at most {MAX_NAME_CHARACTERS} characters as"
                    f" `{claim}`, found another"
                )
            return value
    raise authentication_error(
        f"expected the claim {' or '.join(candidates)} with a name, found none; have the provider"
        " give it, or set GPUSTEWARD_GATEWAY_OIDC_NAME_CLAIM"
    )


def groups_in(claims: Claims, groups_claim: str) -> tuple[str, ...]:
    """Return somebody's groups. Raises RefusedError where the provider left them out for being
    many.
    """
    value = value_at(claims, groups_claim)
    left_out = claims.get("_claim_names")
    if value is None and isinstance(left_out, Mapping) and groups_claim in left_out:
        raise authentication_error(
            "the provider left the groups out of the token, because there are too many; have it"
            " give only those that are assigned to this application"
        )
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return ()
    groups = dict.fromkeys(group for group in value if isinstance(group, str) and group)
    return tuple(groups)[:MAX_GROUPS]


def value_at(claims: Claims, path: str) -> Any:
    """Return a claim, also one inside another, as `realm_access.roles`; None without."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
