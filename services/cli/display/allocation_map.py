"""The allocation map as a table."""

from collections.abc import Sequence

from msgspec.structs import replace

from schemas.scheduler.views import DeviceAllocation, DeviceHolder, NodeAllocation
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.gpu_tables import holders_text
from shared.gpu.share_units import amount_text, shares_per_gpu


def map_table(nodes: Sequence[NodeAllocation]) -> Table:
    """Return a table of what is held of each device and by whom, in its node's shares and their
    unit.
    """
    rows = [
        [
            node.node_id,
            str(device.index),
            device.name,
            " ".join(filter(None, (device.kind, device.mig_profile))),
            amount_text(device.allocated, node.labels, device.index)[0],
            " ".join(filter(None, amount_text(device.capacity, node.labels, device.index))),
            holders_text(_in_shares(device, node)) or UNKNOWN,
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


def _in_shares(device: DeviceAllocation, node: NodeAllocation) -> list[DeviceHolder]:
    """Return the holders with what they hold in the node's own shares."""
    amount = shares_per_gpu(node.labels, device.index)
    return [replace(holder, shares=holder.shares * amount) for holder in device.holders]
