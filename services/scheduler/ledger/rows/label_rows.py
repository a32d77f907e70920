"""Labels of nodes: what agents report, and what operators set over them."""

from collections.abc import Mapping, Sequence
from typing import Final

from schemas.base import NodeId
from schemas.errors import ErrorCode
from services.scheduler.domain.labels import OperatorLabels, apply_changes, effective
from shared.errors import RefusedError
from shared.gpu.shares import MPS_LABEL
from shared.near_words import unknown_node
from shared.postgres.database import Connection, from_json, to_json

_IS_SHARED: Final = """
EXISTS (SELECT FROM holding JOIN device USING (device_no)
    WHERE device.node_id = $1 AND released_at IS NULL AND hundredths < 100)
"""
_HAS_SHARES: Final = f"SELECT {_IS_SHARED}"
# What enforces shares changes only while none is held.
LABELS_REPORTED: Final = f"""
CASE WHEN {_IS_SHARED}
    THEN jsonb_strip_nulls({{0}} || jsonb_build_object('{MPS_LABEL}', labels -> '{MPS_LABEL}'))
    ELSE {{0}} END
"""
_LABELS_OF: Final = "SELECT node_id, labels, operator_labels FROM node WHERE node_id = ANY($1)"
_NODE_IDS: Final = "SELECT node_id FROM node"
_LABELS: Final = "SELECT labels, operator_labels FROM node WHERE node_id = $1 FOR UPDATE"
_SET_LABELS: Final = "UPDATE node SET operator_labels = $2 WHERE node_id = $1"


async def has_shares(connection: Connection, node_id: NodeId) -> bool:
    """Return True if a part of a GPU of the node is held."""
    return bool(await connection.fetchval(_HAS_SHARES, node_id))


async def labels(
    connection: Connection, node_ids: Sequence[NodeId]
) -> dict[NodeId, dict[str, str]]:
    """The labels that count, by node."""
    return {
        row["node_id"]: effective(
            from_json(row["labels"], dict[str, str]),
            from_json(row["operator_labels"], OperatorLabels),
        )
        for row in await connection.fetch(_LABELS_OF, node_ids)
    }


async def no_such_node(connection: Connection, node_id: NodeId) -> RefusedError:
    """Return the refusal of a node that never reported."""
    rows = await connection.fetch(_NODE_IDS)
    message = unknown_node(node_id, (row["node_id"] for row in rows))
    return RefusedError(ErrorCode.NOT_FOUND, message, path="$.node_id")


async def write_labels(
    connection: Connection, node_id: NodeId, changes: Mapping[str, str | None]
) -> dict[str, str]:
    """Change the operators' labels of a node; all that count from now on."""
    row = await connection.fetchrow(_LABELS, node_id)
    if row is None:
        raise await no_such_node(connection, node_id)
    agent = from_json(row["labels"], dict[str, str])
    operator = apply_changes(agent, from_json(row["operator_labels"], OperatorLabels), changes)
    await connection.execute(_SET_LABELS, node_id, to_json(operator))
    return effective(agent, operator)
