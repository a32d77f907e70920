import type { ReservationView } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";
import { rangesOf } from "@/lib/ranges";

/** What a shell on each node is told, so that a program there sees the reserved GPUs alone. */
export function usageText({ devices }: ReservationView): string {
  const byNode = [...groupBy(devices, ({ node_id }) => node_id)];
  return byNode
    .map(([node, ofNode]) => {
      const line = `export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=${ofNode
        .map(({ uuid }) => uuid)
        .join(",")}`;
      return byNode.length > 1 ? `# on ${node}\n${line}` : line;
    })
    .join("\n");
}

/** `gpu-01: 0, 1, 2`, a node after the other. */
export function devicesText({ devices, node_ids: nodes }: ReservationView): string {
  if (devices.length === 0) return nodes.join(", ");
  return [...groupBy(devices, ({ node_id }) => node_id)]
    .map(([node, ofNode]) => `${node}: ${rangesOf(ofNode.map(({ index }) => index))}`)
    .join("; ");
}
