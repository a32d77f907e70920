"""Message kinds, constrained types, and the subject that each message computes for itself."""

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar, Final
from uuid import UUID

from msgspec import Meta, Struct

PREFIX: Final = "gpusteward"
API: Final = "/api/v1"  # where the gateway's routes begin
HOUR_SECONDS: Final = 3600
HOUR_US: Final = 3_600_000_000
SHORT_ID_CHARACTERS: Final = 12  # of an id's end, by which people name it
# Python's `$` alone also matches before a newline that ends the text.
END: Final = r"$(?!\n)"
TOKEN_PATTERN: Final = rf"^[A-Za-z0-9_-]{{1,128}}{END}"  # a subject token's grammar, not a secret

TOKEN_FORM: Final = "1 to 128 letters, digits, - and _"  # noqa: S105  # as above
NODE_ID_FORM: Final = f"a node's id: {TOKEN_FORM}"
SPEAKER_PATTERN: Final = rf"^[A-Za-z0-9_-]{{1,133}}{END}"
PLATFORM: Final = "_platform"
NODE_PREFIX: Final = "node_"
FRESH_INTERVALS: Final = 3  # no decision is made on a sample older than so many of its intervals
SENDER_PATTERN: Final = rf"^[A-Za-z0-9_-]{{0,140}}{END}"
NAMESPACE_PATTERN: Final = rf"^[a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?{END}"
NAME_PATTERN: Final = rf"^[A-Za-z0-9]([A-Za-z0-9_.-]{{0,126}}[A-Za-z0-9])?{END}"
# A variable that is a secret by its name: another could have an engine load code, or read what its
# task may not name.
SECRET_NAME_PATTERN: Final = (
    r"^(?!GPUSTEWARD_)[A-Z][A-Z0-9_]{0,100}"
    rf"_(TOKEN|KEY|KEY_ID|SECRET|PASSWORD|CREDENTIALS|CONNECTION_STRING){END}"
)
VARIABLE_FORM: Final = (
    "a variable such as HF_TOKEN: capital letters, digits and _, not of GPUSTEWARD_, with the end "
    "_TOKEN, _KEY, _KEY_ID, _SECRET, _PASSWORD, _CREDENTIALS or _CONNECTION_STRING"
)
NAME_FORM: Final = "1 to 128 letters, digits, _, . and -, the first and last a letter or digit"
# What Postgres and every JSON reader of ours can hold.
MAX_INTEGER: Final = 2**63 - 1
NAMESPACE_FORM: Final = "1 to 63 small letters, digits and -, the first and last none of -"
# What people are shown holds no control character, no line separator, and nothing that turns the
# direction of what follows: it could pass for another name, or for a line of ours on a terminal.
_HIDDEN: Final = r"\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
LINE_PATTERN: Final = rf"^[^\u0000-\u001f{_HIDDEN}]*{END}"
PROSE_PATTERN: Final = rf"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f{_HIDDEN}]*$"
LINE_FORM: Final = "one line without control characters or marks of text direction"


def line(*, min_length: int | None = None, max_length: int | None = None) -> Meta:
    """Return the limits of a text that is shown to people."""
    return Meta(
        pattern=LINE_PATTERN, description=LINE_FORM, min_length=min_length, max_length=max_length
    )


# The description is the error text for a sender of another form.
Line = Annotated[str, Meta(pattern=LINE_PATTERN, description=LINE_FORM)]
MAX_PAGE: Final = 1000  # rows of one answer
GivenReason = Annotated[str, line(max_length=1000)]
# Of a token, a login or an account; empty: nobody is known.
Person = Annotated[str, line(max_length=200)]
Token = Annotated[str, Meta(pattern=TOKEN_PATTERN, description=TOKEN_FORM)]
NodeId = Annotated[str, Meta(pattern=TOKEN_PATTERN, description=NODE_ID_FORM)]
Namespace = Annotated[str, Meta(pattern=NAMESPACE_PATTERN, description=NAMESPACE_FORM)]
Name = Annotated[str, Meta(pattern=NAME_PATTERN, description=NAME_FORM)]
# No namespace has a _, so the three forms are never the same.
Speaker = Annotated[
    str,
    Meta(
        pattern=SPEAKER_PATTERN,
        description="a namespace, node_ID of a node, or _platform of its services and admins",
    ),
]
Sender = Annotated[
    str, Meta(pattern=SENDER_PATTERN, description="the name of a user of the bus, or nothing")
]
SecretName = Annotated[str, Meta(pattern=SECRET_NAME_PATTERN, description=VARIABLE_FORM)]
LabelKey = Annotated[
    str,
    Meta(
        pattern=rf"^[A-Za-z0-9]([A-Za-z0-9_./-]{{0,251}}[A-Za-z0-9])?{END}",
        description="1 to 253 letters, digits, _, ., / and -, the first and last a letter or digit",
    ),
]
LabelValue = Name
DeviceUuid = Annotated[str, Meta(min_length=1, max_length=128)]
GivenDeviceUuid = Annotated[str, line(min_length=1, max_length=128)]  # by people; not in samples
UtcDatetime = Annotated[datetime, Meta(tz=True)]
Seconds = Annotated[float, Meta(ge=0)]
PositiveSeconds = Annotated[float, Meta(gt=0)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Integer = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Mebibytes = Count
PositiveInt = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Epoch = PositiveInt


class Kind(StrEnum):
    """What a subject promises: a fact, a request to change, a question, or a transient view."""

    EVENT = "evt"
    COMMAND = "cmd"
    QUERY = "rpc"
    LIVE = "live"


class Message(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Root of everything that travels under a subject of its own.

    `key_field` names the field whose value ends the subject: the id whose order matters, or the
    node asked. None means the subject has no key. `speaker_field` names the field whose value
    stands before it: in whose name it is sent, which the bus holds its sender to.
    """

    kind: ClassVar[Kind]
    key_field: ClassVar[str | None] = None
    speaker_field: ClassVar[str | None] = None


class Event(Message, frozen=True, kw_only=True):
    """A fact that its owner has committed. Seen twice or late it changes nothing.

    `revision` grows by one with every event of the same aggregate; a consumer ignores what is not
    newer.
    """

    kind: ClassVar[Kind] = Kind.EVENT
    message_id: UUID
    occurred_at: UtcDatetime
    revision: Count


class Sample(Message, frozen=True, kw_only=True):
    """A reading of something that goes on: in the stream of samples, unacknowledged.

    Its identity is in its own fields; seen twice or late it changes nothing.
    """

    kind: ClassVar[Kind] = Kind.EVENT
    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId


class Command(Message, frozen=True, kw_only=True):
    """A request to change something, answered `Accepted` or `Refused` after the owner's commit.

    The same `command_id` with the same body gets the same answer; with another body it is refused.

    `sender` is the user of the bus that sends it. Its subject ends with `.as.` and that name then,
    which a server holds every user to: what comes so is proved. Empty: the subject tells nobody.
    """

    kind: ClassVar[Kind] = Kind.COMMAND
    command_id: UUID
    sender: Sender = ""


class ScopedCommand(Command, frozen=True, kw_only=True):
    """A command that is refused unless what it changes belongs to its `speaker`."""

    speaker_field: ClassVar[str | None] = "speaker"
    speaker: Speaker = PLATFORM


class Query(Message, frozen=True, kw_only=True):
    """A question; changes nothing and may be repeated freely."""

    kind: ClassVar[Kind] = Kind.QUERY


class Live(Message, frozen=True, kw_only=True):
    """A passing view (progress, a log line): never stored, lost when nobody listens."""

    kind: ClassVar[Kind] = Kind.LIVE
    observed_at: UtcDatetime


class View(Struct, frozen=True, kw_only=True, tag_field="type"):
    """An owner's answer to a query: its state at the moment of asking."""


class ListQuery(Query, frozen=True, kw_only=True):
    """A question for a list: at most `limit` of it, from where `cursor` says.

    A `cursor` is the `next_cursor` of an earlier answer; None begins at the front.
    """

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    cursor: str | None = None


class ListView(View, frozen=True, kw_only=True):
    """A part of a list. `next_cursor` asks for what follows; None: nothing does.

    It names a place in the order, so that what is stored or deleted meanwhile moves nothing else
    to another part.
    """

    next_cursor: str | None = None


def token(value: str, pattern: str = TOKEN_PATTERN) -> str:
    """`value`, if it can stand as one subject token.

    Raises ValueError otherwise: a dot would become two tokens.
    """
    if not re.fullmatch(pattern, value):
        raise ValueError(f"expected a subject token matching {pattern}, got {value!r}")
    return value


def tag_of(message: type[Message]) -> str:
    """The tag of a message class, `owner.what`."""
    tag = message.__struct_config__.tag
    if not isinstance(tag, str):
        raise TypeError(f"{message.__name__} has no tag")
    return tag


def node_speaker(node_id: str) -> str:
    """Return the user name with which a node speaks and logs in."""
    return f"{NODE_PREFIX}{node_id}"


def pattern_for(
    message: type[Message], key: str | None = None, *, speaker: str | None = None
) -> str:
    """The subject on which messages of this class arrive; None means any."""
    subject = f"{PREFIX}.{message.kind.value}.{tag_of(message)}"
    if message.speaker_field is not None:
        subject += f".{'*' if speaker is None else token(speaker, SPEAKER_PATTERN)}"
    if message.key_field is not None:
        subject += f".{'*' if key is None else token(key)}"
    return subject


def subject_for(message: Message) -> str:
    """The one subject of this message, from its kind, tag, speaker and key."""
    cls = type(message)
    key = None if cls.key_field is None else str(getattr(message, cls.key_field))
    speaker = None if cls.speaker_field is None else str(getattr(message, cls.speaker_field))
    subject = pattern_for(cls, key, speaker=speaker)
    sender = message.sender if isinstance(message, Command) else ""
    return sender_subject(subject, sender) if sender else subject


def sender_subject(subject: str, sender: str) -> str:
    """The subject of the same command from a user of the bus alone; `*` is any."""
    return f"{subject}.as.{sender}"
