"""The file of tokens: who may use the API, in what role."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from schemas.base import Namespace


class Role(StrEnum):
    """viewer reads; submitter also changes things of its namespace; admin changes everything."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"


class Token(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose token has this SHA-256, in hexadecimal digits; the token itself is not kept."""

    token_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
    role: Role
    namespace: Namespace = "default"
