"""How a new server joins: an admin's invitation, which it shows once for the bus's credentials."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from schemas.base import TOKEN_PATTERN, UtcDatetime, View
from schemas.gateway.tokens import Secret

CODE_VARIABLE: Final = "GPUSTEWARD_JOIN_CODE"  # from which `join` takes the code
# From which `join` takes the authority of the gateway's certificate: base64 of its DER form.
AUTHORITY_VARIABLE: Final = "GPUSTEWARD_JOIN_CA"


class InvitationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At which address who invites has reached the platform: the new server asks there too."""

    api_url: Annotated[str, Meta(pattern=r"^https?://[^\s?#]+$", max_length=300)]


class NodeInvitation(View, frozen=True, kw_only=True, tag="gateway.node_invitation"):
    """A code that gives the server `node_id` its credentials once, until `ends_at`.

    `command` is the line of shell to type on that server: it installs, joins and starts.
    """

    node_id: str
    code: str
    ends_at: UtcDatetime
    command: str


class JoinRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a new server shows. A code counts for the node that it was made for alone."""

    node_id: Annotated[str, Meta(pattern=TOKEN_PATTERN)]
    code: Secret


class NodeCredentials(View, frozen=True, kw_only=True, tag="gateway.node_credentials"):
    """With what a node logs in to the bus, and where that listens.

    The host of `nats_url` is a wildcard where the bus listens on every address of the platform's
    host. `ca` is the authority of its certificate, in PEM; empty where it has none of its own.
    """

    nats_url: str
    user: str
    password: str
    inbox_prefix: str
    ca: str = ""
