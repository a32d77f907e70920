"""Tokens: who may use the API, in what role; and the log of what they changed."""

from enum import StrEnum
from typing import Annotated, Any, Final
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import Count, ListView, Name, Namespace, UtcDatetime, View

# Who runs a client, percent-encoded, as it says itself.
ACCOUNT_HEADER: Final = "X-GPU-Steward-Account"
MAX_BODY_BYTES = 1 << 20  # as much as the bus carries
Lifetime = Annotated[float, Meta(gt=0, le=10 * 365 * 86_400)]
RequestRate = Annotated[float, Meta(gt=0, le=1_000_000)]
Secret = Annotated[str, Meta(min_length=1, max_length=1000)]
BodyLimit = Annotated[int, Meta(ge=2, le=MAX_BODY_BYTES)]


class Role(StrEnum):
    """viewer reads; submitter also changes things of its namespace; owner also sets its limit,
    tokens and members; admin changes everything. Each may do what those before it may.
    """

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OWNER = "owner"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Return how much it may do: more than any role with a smaller rank."""
        return _RANKS[self]


_RANKS: Final = {role: rank for rank, role in enumerate(Role)}


class Token(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the file of tokens.

    Whose token has this SHA-256, in hexadecimal digits; the token itself is not kept.
    """

    token_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
    role: Role
    namespace: Namespace = "default"


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to be made. Limits that are None are the gateway's own.

    A `personal` one acts as the person who makes it, never with more than that person has, and ends
    with the sign-in at the provider that it was made with. Others are of programs: an admin makes
    them, and an owner for namespaces of its own.
    """

    name: Name
    role: Role
    namespaces: Annotated[tuple[Namespace, ...], Meta(min_length=1, max_length=100)] = ("default",)
    expires_in_seconds: Lifetime | None = None
    requests_per_second: RequestRate | None = None
    body_limit_bytes: BodyLimit | None = None
    personal: bool = False


class TokenView(View, frozen=True, kw_only=True, tag="gateway.token"):
    """A token without its secret. It changes things of any of its namespaces; the first is meant
    where none is named.

    `from_file`: it stands in the file of tokens of the platform's host. `last_used_at` is right to
    a minute. `person` is who signed in at the provider for it; with `is_session` it is the sign-in
    itself, of a browser or the command line, with all that this person may do.
    """

    token_id: UUID
    name: str
    role: Role
    namespaces: tuple[str, ...]
    created_at: UtcDatetime
    created_by: str
    from_file: bool = False
    expires_at: UtcDatetime | None = None
    revoked_at: UtcDatetime | None = None
    last_used_at: UtcDatetime | None = None
    requests_per_second: float | None = None
    body_limit_bytes: Count | None = None
    person: str = ""
    is_session: bool = False


class MadeToken(Struct, frozen=True, kw_only=True):
    """A new token with its secret, which is shown this once."""

    secret: str
    token: TokenView


class Login(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A browser's login: with a token, or with the code of a link."""

    token: Secret | None = None
    code: Secret | None = None


class LoginLink(View, frozen=True, kw_only=True, tag="gateway.login_link"):
    """What logs a browser in once, until `ends_at`: the page does at its address with `#login=` and
    the code behind it.
    """

    code: str
    ends_at: UtcDatetime


class Me(View, frozen=True, kw_only=True, tag="gateway.me"):
    """Who is asking. `namespaces` are those of its token; an admin's reach is every one.

    `csrf_token`, of a login's cookie only, belongs into the header X-CSRF-Token of every request
    that changes something. `person` is recorded as the requester of what this caller asks for: the
    token's name, or what an admin's client says of the account that runs it, which nothing proves.

    `role` is the highest; `roles` has those of namespaces in which it is another. `provider` is who
    was signed in at, None with a token of this platform. `ends_at`: None is without end.
    """

    role: Role
    namespaces: tuple[str, ...]
    name: str = ""
    token_id: UUID | None = None
    asks_for_tokens: bool = True
    csrf_token: str | None = None
    person: str = ""
    roles: dict[str, Role] = {}
    provider: str | None = None
    ends_at: UtcDatetime | None = None


class TokenList(ListView, frozen=True, kw_only=True, tag="gateway.tokens"):
    """Tokens, newest first, also those that count no more."""

    tokens: tuple[TokenView, ...]


class AuditKind(StrEnum):
    """What an entry of the audit log is about."""

    CHANGE = "change"
    SIGN_IN = "sign_in"
    REFUSED = "refused"


class AuditResult(StrEnum):
    """What came of a request."""

    DONE = "done"
    REFUSED = "refused"
    UNANSWERED = "unanswered"  # the gateway ended before it


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One request that was to change something, that signed somebody in, or that was refused for
    what it was to sign in with.

    `status` is the HTTP status of its answer; None where the gateway ended before it. `token_id` is
    None, and `caller` empty, where no token is asked for. `before` and `after` are the fields of
    what the path names, or of what was made, that differ from just before
    the request to just after it, and always those that name it (`task_name`, `holder`, `request`);
    None where nothing was there, or its owner did not answer in time.

    With the method NATS it is a command that came without this gateway: `path` is its tag and what
    it names, `caller` the bus user that sent it. Not `proved`: only whose subject it came on is.

    `login` is by what the caller was known: `token`, `browser`, `bus`, or a provider; empty where
    none is asked for. `address` is the connection's, or what a trusted proxy says. Refused sign-ins
    of an address for one `reason` are one entry a minute, with their `count` and the first `path`;
    those of further addresses are together under an empty one when there are very many.
    """

    audit_id: Count
    at: UtcDatetime
    token_id: UUID | None
    caller: str
    address: str
    method: str
    path: str
    status: Count | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    proved: bool = True
    kind: AuditKind = AuditKind.CHANGE
    login: str = ""
    count: Count = 1
    reason: str = ""


class AuditList(ListView, frozen=True, kw_only=True, tag="gateway.audit"):
    """Entries of the audit log, newest first."""

    entries: tuple[AuditEntry, ...]
