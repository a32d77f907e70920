"""What people send to try a server that runs already."""

from typing import Annotated

from msgspec import Meta, Struct

from schemas.base import Line
from schemas.executor.servers import MAX_MESSAGES, AnswerLimit, ChatTurn, ServerKey
from schemas.task.endpoint import EndpointUrl


class ServerAddress(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that runs already. The key is shown to it alone, and stored nowhere."""

    url: EndpointUrl
    api_key: ServerKey | None = None


class ServerQuestion(ServerAddress, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation for a model of the server, whose last message it answers."""

    model: Line
    messages: Annotated[tuple[ChatTurn, ...], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: AnswerLimit = 256
