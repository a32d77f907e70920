import { useQuery } from "@tanstack/react-query";
import type { GpuView, NodeView } from "@schemas/messages";
import { Empty, Loaded, Page } from "@/components/page";
import { SimulatedBadge } from "@/components/simulated-badge";
import { groupBy } from "@/lib/group-by";
import { gpusOptions, nodesOptions } from "./api/get-fleet";
import { NodeRow } from "./components/node-row";
import { SummaryStrip } from "./components/summary-strip";

export function FleetPage() {
  const gpus = useQuery(gpusOptions);
  const nodes = useQuery(nodesOptions);
  const isSimulated = gpus.data?.some((gpu) => gpu.simulated);
  return (
    <Page title="Fleet" aside={isSimulated && <SimulatedBadge />}>
      <Loaded query={gpus}>
        {(known) =>
          known.length === 0 ? (
            <Empty title="No GPU has reported yet">
              <code>gpusteward up --simulate</code> makes up a fleet; <code>gpusteward doctor</code>{" "}
              says what this host has; <code>gpusteward agent</code> joins another one.
            </Empty>
          ) : (
            <>
              <SummaryStrip gpus={known} listedAt={gpus.dataUpdatedAt} />
              {byNode(known, nodes.data ?? []).map(([nodeId, node, its]) => (
                <NodeRow key={nodeId} nodeId={nodeId} node={node} gpus={its} listedAt={gpus.dataUpdatedAt} />
              ))}
            </>
          )
        }
      </Loaded>
    </Page>
  );
}

function byNode(gpus: GpuView[], nodes: NodeView[]): [string, NodeView | undefined, GpuView[]][] {
  const known = new Map(nodes.map((node) => [node.node_id, node]));
  const groups = groupBy(gpus, (gpu) => gpu.node_id);
  return [...groups].map(([nodeId, its]) => [nodeId, known.get(nodeId), its]);
}
