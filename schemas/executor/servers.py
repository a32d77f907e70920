"""Trying a server that runs already: which models it lists, what it answers."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct

from schemas.base import PROSE_PATTERN, Count, Line, NodeId, Query, Seconds, View
from schemas.task.endpoint import EndpointUrl

MAX_MESSAGES: Final = 40
MAX_MESSAGE_CHARACTERS: Final = 8_000
ChatText = Annotated[
    str,
    Meta(
        pattern=PROSE_PATTERN,
        min_length=1,
        max_length=MAX_MESSAGE_CHARACTERS,
        description="text without control characters or marks of text direction",
    ),
]
AnswerLimit = Annotated[int, Meta(ge=1, le=1024)]
ServerKey = Annotated[
    str,
    Meta(
        pattern=r"^[\x21-\x7e]+$",
        max_length=4096,
        description="a key of printable ASCII, without spaces",
    ),
]


class ChatRole(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class ChatTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of a conversation."""

    role: ChatRole
    content: ChatText


class ListServedModels(Query, frozen=True, kw_only=True, tag="executor.list_served_models"):
    """Asks an executor which models a server lists; answered by `ServedModels`.

    The key is shown to the server alone.
    """

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    url: EndpointUrl
    api_key: ServerKey | None = None


class ServedModels(View, frozen=True, kw_only=True, tag="executor.served_models"):
    """The names of the models that a server lists at `/v1/models`."""

    models: tuple[str, ...]


class AskServer(Query, frozen=True, kw_only=True, tag="executor.ask_server"):
    """Asks an executor for a server's answer to a conversation; answered by `ServerAnswer`.

    Nothing of it is stored.
    """

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    url: EndpointUrl
    model: Line
    messages: Annotated[tuple[ChatTurn, ...], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: AnswerLimit = 256
    api_key: ServerKey | None = None


class ServerAnswer(View, frozen=True, kw_only=True, tag="executor.server_answer"):
    """A server's answer, with its thoughts; `output_tokens` None: the server did not count them."""

    text: str
    seconds: Seconds
    output_tokens: Count | None = None
