"""Secrets of a namespace: variables that its engines and benchmark jobs are given by name."""

from typing import Annotated, ClassVar, Final
from uuid import UUID

from msgspec import Meta, Struct
from typing_extensions import override

from schemas.base import (
    Command,
    Count,
    ListQuery,
    ListView,
    Namespace,
    Person,
    Query,
    SecretName,
    Speaker,
    UtcDatetime,
    View,
)

MAX_SECRET_BYTES: Final = 32_768
# What may not be shown where it is wrong: `shared.problems` leaves it out of its sentence.
HiddenText = Annotated[str, Meta(extra_json_schema={"writeOnly": True})]


class SecretValue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value of a secret, from 1 to 32,768 bytes in UTF-8 without the character NUL."""

    value: HiddenText

    @override
    def __repr__(self) -> str:
        return "SecretValue(...)"


class SetSecret(Command, frozen=True, kw_only=True, tag="orchestrator.set_secret"):
    """Keep a value under a name, in place of the one before. Sent by gateways alone, and stored
    only as it is sealed: neither the command nor its hash is kept.
    """

    namespace: Namespace
    name: SecretName
    value: HiddenText
    set_by: Person = ""

    @override
    def __repr__(self) -> str:
        return f"SetSecret(namespace={self.namespace!r}, name={self.name!r})"


class RemoveSecret(Command, frozen=True, kw_only=True, tag="orchestrator.remove_secret"):
    """Forget a secret. A task that names it fails where it starts an engine."""

    namespace: Namespace
    name: SecretName


class RotateSecretKey(Command, frozen=True, kw_only=True, tag="orchestrator.rotate_secret_key"):
    """Seal every secret with the newest key of the platform's; accepted, its `revision` is how many
    were.
    """


class ListSecrets(ListQuery, frozen=True, kw_only=True, tag="orchestrator.list_secrets"):
    """Answered by `SecretList`: what a namespace has, by name; None: of every namespace."""

    namespace: Namespace | None = None


class OpenSecrets(Query, frozen=True, kw_only=True, tag="orchestrator.open_secrets"):
    """Answered by `OpenedSecrets`: the values that an attempt's task names, for the node that runs
    it, as long as it does.

    The answer goes to that node's own inbox and is in no stream.
    """

    speaker_field: ClassVar[str | None] = "speaker"
    speaker: Speaker
    attempt_id: UUID


class SecretView(Struct, frozen=True, kw_only=True):
    """A secret without its value. `used_by` are the unfinished tasks that name it."""

    namespace: str
    name: str
    revision: Count
    set_at: UtcDatetime
    set_by: str = ""
    used_by: tuple[str, ...] = ()


class SecretList(ListView, frozen=True, kw_only=True, tag="orchestrator.secrets"):
    """Secrets by namespace and name."""

    secrets: tuple[SecretView, ...]


class OpenedSecrets(View, frozen=True, kw_only=True, tag="orchestrator.opened_secrets"):
    """Values by name."""

    values: dict[str, HiddenText]

    @override
    def __repr__(self) -> str:
        return f"OpenedSecrets({', '.join(self.values)})"
