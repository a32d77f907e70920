"""The allocation map as a table."""

from collections.abc import Sequence

from schemas.scheduler.views import NodeAllocation
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.gpu_tables import holders_text


def map_table(nodes: Sequence[NodeAllocation]) -> Table:
    """What is held of each device, and by whom."""
    rows = [
        [
            node.node_id,
            str(device.index),
            device.name,
            " ".join(filter(None, (device.kind, device.mig_profile))),
            f"{device.allocated:.2f}",
            f"{device.capacity:.2f}",
            holders_text(device.holders) or UNKNOWN,
            device.uuid,
        ]
        for node in nodes
        for device in node.devices
    ]
    headings = ["node", "GPU", "name", "kind", "held", "of", "holders", "uuid"]
    return Table(
        headings,
        rows,
        numeric=frozenset({"held", "of"}),
        important=("node", "GPU", "held", "of", "holders"),
        wrapped=frozenset({"holders"}),
    )
