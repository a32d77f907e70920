"""Signing in at an OpenID provider, and who may do what in a namespace."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import LINE_FORM, LINE_PATTERN, ListView, Name, Namespace, UtcDatetime, View
from schemas.gateway.tokens import Role, Secret


class SignInOffer(View, frozen=True, kw_only=True, tag="gateway.sign_in_offer"):
    """How people sign in here. `provider` is what people call the OpenID provider; None: there is
    none, a token is the only way. `has_device_flow`: a command line may sign in by a code.
    """

    provider: str | None = None
    issuer: str | None = None
    has_device_flow: bool = False


class DeviceRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sign-in of a program without a browser. `client` is what the session will be called."""

    client: Name = "command line"


class DeviceCode(View, frozen=True, kw_only=True, tag="gateway.device_code"):
    """What a person confirms: at `verification_url` they enter `user_code`, or open
    `complete_url`, which has it. `code` is shown to the gateway every `interval_seconds`, until
    `ends_at`.
    """

    code: str
    user_code: str
    verification_url: str
    complete_url: str | None = None
    interval_seconds: float
    ends_at: UtcDatetime


class DeviceAnswerRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Has the person confirmed this code?"""

    code: Secret


class DeviceAnswerState(StrEnum):
    """PENDING: ask again after the interval; SIGNED_IN: here is the token of the session."""

    PENDING = "pending"
    SIGNED_IN = "signed_in"


class DeviceAnswer(View, frozen=True, kw_only=True, tag="gateway.device_answer"):
    """What became of a code. `secret` is the session's token, which is shown this once."""

    state: DeviceAnswerState
    interval_seconds: float
    secret: str | None = None
    name: str = ""


class SignedOut(View, frozen=True, kw_only=True, tag="gateway.signed_out"):
    """The login has ended here. A browser that goes to `provider_url` ends it at the provider."""

    provider_url: str | None = None


class MemberKind(StrEnum):
    """A person by the name, or a group by the name, that the provider says."""

    PERSON = "person"
    GROUP = "group"


MemberName = Annotated[
    str, Meta(min_length=1, max_length=200, pattern=LINE_PATTERN, description=LINE_FORM)
]


class MemberRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person or group with a role in a namespace, beside what their groups give everywhere."""

    kind: MemberKind = MemberKind.PERSON
    name: MemberName
    role: Role = Role.SUBMITTER

    def __post_init__(self) -> None:
        if self.role is Role.ADMIN:
            raise ValueError("expected viewer, submitter or owner; nobody is admin of a namespace")


class MemberView(Struct, frozen=True, kw_only=True):
    """A member of a namespace."""

    member_id: UUID
    namespace: Namespace
    kind: MemberKind
    name: str
    role: Role
    set_by: str
    set_at: UtcDatetime


class MemberList(ListView, frozen=True, kw_only=True, tag="gateway.members"):
    """Members of a namespace, by kind and name."""

    members: tuple[MemberView, ...]
