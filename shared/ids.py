"""Identifiers: time-ordered UUIDs and node names that can stand in a subject."""

import hashlib
import os
import re
from uuid import UUID

import uuid6

_TOKEN_CHARACTERS = 128


def new_id() -> UUID:
    """A UUIDv7; ids made later by one process sort later."""
    return UUID(int=uuid6.uuid7().int)  # its own subclass is none that msgspec encodes


def node_token(name: str) -> str:
    """A node's id from its name: itself where it is a subject token already.

    Otherwise what does not fit is replaced by `-` and eight hex digits of the name's SHA-256 are
    appended, so that two names never become one id.
    """
    replaced = re.sub(r"[^A-Za-z0-9_-]", "-", name)
    if replaced == name and 0 < len(name) <= _TOKEN_CHARACTERS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{replaced[: _TOKEN_CHARACTERS - 9]}-{digest}"


def host_node_id() -> str:
    """The id of this machine as a node, from its host name."""
    return node_token(os.uname().nodename)
