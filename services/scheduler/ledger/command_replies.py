"""Replies to commands: stored with what the command changed, given again when it is repeated."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from schemas.errors import Reply
from shared.errors import StewardError
from shared.messaging.codec import decode_reply, encode
from shared.messaging.idempotency import is_final, replay_or_refuse
from shared.postgres.database import Connection
from shared.postgres.replication import await_standby
from shared.postgres.writes import Writes

_FIND: Final = "SELECT command_id, body_hash, reply FROM command WHERE command_id = ANY($1)"
_INSERT: Final = """
INSERT INTO command (command_id, body_hash, reply)
SELECT command_id, body_hash, reply
FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS new (command_id, body_hash, reply)
ORDER BY command_id ON CONFLICT DO NOTHING
RETURNING command_id
"""


class AppliedElsewhereError(StewardError):
    """Another transaction applied the same command at the same time; this one changes nothing."""


async def find(connection: Connection, hashes: Mapping[UUID, bytes]) -> dict[UUID, Reply]:
    """Replies to those of these commands that came before; a refusal if it had another body."""
    rows = await connection.fetch(_FIND, list(hashes))
    if rows:
        await await_standby(connection)
    return {
        (i := row["command_id"]): replay_or_refuse(
            i, hashes[i], row["body_hash"], decode_reply(row["reply"])
        )
        for row in rows
    }


async def insert(
    connection: Connection,
    writes: Writes,
    replies: Mapping[UUID, Reply],
    hashes: Mapping[UUID, bytes],
) -> None:
    """Store final replies with what else is written; a retryable refusal is not one.

    Raises AppliedElsewhereError.
    """
    final = {i: reply for i, reply in replies.items() if is_final(reply)}
    if not final:
        await writes.send(connection)
        return
    stored = await writes.fetch_last(
        connection,
        _INSERT,
        list(final),
        [hashes[i] for i in final],
        [encode(r) for r in final.values()],
    )
    if len(stored) < len(final):
        raise AppliedElsewhereError(f"{len(final) - len(stored)} commands were applied elsewhere")
