"""The bus as an AsyncAPI 3.0 document, from the point of view of the platform's services.

Payloads are references into `schema.json` beside it.
"""

import inspect

from msgspec import Struct

from schemas.base import Kind, Message, Query, pattern_for, tag_of
from schemas.catalog import MESSAGES, REPLIES
from schemas.errors import Accepted, Refused
from schemas.formats.json_schema import Json

COMMAND_REPLY = "command.reply"
CONTENT_TYPE = "application/msgpack"


def asyncapi() -> Json:
    """Channels are subjects, operations what the owner does with them."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "GPU Steward",
            "version": "1",
            "description": (
                "Events and live views are published by their owner. Commands and queries are"
                " requests; the answer goes to the request's reply subject."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": _channels(),
        "operations": {tag_of(cls): _operation(cls) for cls in MESSAGES},
        "components": {
            "messages": {cls.__name__: _message(cls) for cls in _list_structs()},
        },
    }


def _list_structs() -> tuple[type[Struct], ...]:
    return tuple(dict.fromkeys((*MESSAGES, *REPLIES.values(), Accepted, Refused)))


def _channels() -> Json:
    channels = {tag_of(cls): _channel(cls) for cls in MESSAGES}
    for query, view in REPLIES.items():
        channels[_reply_channel(query)] = _answers(view, Refused)
    channels[COMMAND_REPLY] = _answers(Accepted, Refused)
    return channels


def _channel(cls: type[Message]) -> Json:
    fields = [field for field in (cls.speaker_field, cls.key_field) if field is not None]
    address = pattern_for(cls)
    for field in fields:
        address = address.replace("*", f"{{{field}}}", 1)
    channel: Json = {"address": address, "messages": _references(cls)}
    if fields:
        channel["parameters"] = {
            field: {"description": f"The message's `{field}`."} for field in fields
        }
    return channel


def _answers(*classes: type[Struct]) -> Json:
    return {"address": None, "messages": _references(*classes)}


def _references(*classes: type[Struct]) -> Json:
    return {cls.__name__: {"$ref": f"#/components/messages/{cls.__name__}"} for cls in classes}


def _operation(cls: type[Message]) -> Json:
    tag = tag_of(cls)
    operation: Json = {
        "action": "send" if cls.kind in (Kind.EVENT, Kind.LIVE) else "receive",
        "channel": {"$ref": f"#/channels/{tag}"},
        "summary": _summary(cls),
        "tags": [{"name": tag.split(".")[0]}, {"name": cls.kind.name.lower()}],
    }
    reply = None
    if issubclass(cls, Query):
        reply = _reply_channel(cls)
    elif cls.kind is Kind.COMMAND:
        reply = COMMAND_REPLY
    if reply is not None:
        operation["reply"] = {"channel": {"$ref": f"#/channels/{reply}"}}
    return operation


def _reply_channel(query: type[Query]) -> str:
    return f"{tag_of(query)}.reply"


def _message(cls: type[Struct]) -> Json:
    return {
        "name": cls.__struct_config__.tag,
        "title": cls.__name__,
        "summary": _summary(cls),
        "contentType": CONTENT_TYPE,
        "payload": {"$ref": f"schema.json#/$defs/{cls.__name__}"},
    }


def _summary(cls: type[Struct]) -> str:
    return " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())
