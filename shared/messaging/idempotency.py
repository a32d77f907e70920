"""Commands answered once: one that comes again gets the reply that was stored.

Each owner stores replies where its state is, so that both commit together. A retryable refusal
changed nothing and is not stored: the same command may succeed later.
"""

import hashlib
from uuid import UUID

from msgspec.structs import replace

from schemas.base import Command
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from shared.messaging.codec import encode


def body_hash(command: Command) -> bytes:
    """Return the hash by which two commands of one id are compared, whoever sent them."""
    unsigned = replace(command, sender="") if command.sender else command
    return hashlib.sha256(encode(unsigned)).digest()


def is_final(reply: Reply) -> bool:
    """True if the reply is stored: accepted, or refused for good."""
    return isinstance(reply, Accepted) or not reply.retryable


def replay_or_refuse(command_id: UUID, digest: bytes, stored_digest: bytes, reply: Reply) -> Reply:
    """The stored reply if the command came with the same body, else its refusal."""
    if digest == stored_digest:
        return reply
    return Refused(
        code=ErrorCode.COMMAND_ID_REUSED,
        message=f"command {command_id} came before with another body",
        command_id=command_id,
        path="$.command_id",
    )
