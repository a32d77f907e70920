"""Rows are locked in one order: leader, reservations by id, nodes by id, devices by number, hosts.

Two transactions that differ in it wait for each other, until Postgres undoes one of them.
"""

from collections.abc import Collection
from typing import Final

from schemas.base import NodeId
from shared.postgres.database import Connection

_NODES: Final = "SELECT 1 FROM node WHERE node_id = ANY($1) ORDER BY node_id FOR NO KEY UPDATE"
# A grant that has locked one of them is in the ledger by then, or finds what is written after this.
_DEVICES: Final = "SELECT 1 FROM device WHERE node_id = ANY($1) ORDER BY device_no FOR UPDATE"


async def lock_nodes(connection: Connection, node_ids: Collection[NodeId]) -> None:
    """Nodes with their devices, before several of these rows are changed: a statement finds them in
    any order, and a loop over reservations goes by those.
    """
    await connection.execute(_NODES, node_ids)
    await connection.execute(_DEVICES, node_ids)
