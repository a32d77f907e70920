import type { GpuView, NodeView } from "@schemas/messages";
import { SimulatedBadge } from "@/components/simulated-badge";
import { StateMark } from "@/components/state-mark";
import { GpuTile } from "./gpu-tile";
import classes from "./node-row.module.css";
import { ServiceActions } from "./service-actions";

interface NodeRowProps {
  nodeId: string;
  node: NodeView | undefined;
  gpus: GpuView[];
  listedAt: number;
}

export function NodeRow({ nodeId, node, gpus, listedAt }: NodeRowProps) {
  return (
    <section className={classes.row} aria-label={`node ${nodeId}`}>
      <header className={classes.header}>
        <h2>{nodeId}</h2>
        {node?.simulated && <SimulatedBadge />}
        <NodeMark node={node} />
        <span className="dim">
          {node ? `${node.gpus_free} of ${node.gpus_total} free` : `${gpus.length} GPUs`}
        </span>
        <span className={classes.actions}>
          <ServiceActions nodeId={nodeId} isCordoned={Boolean(node?.cordon)} />
        </span>
      </header>
      <div className={classes.tiles}>
        {gpus.map((gpu) => (
          <GpuTile key={gpu.uuid} listed={gpu} listedAt={listedAt} />
        ))}
      </div>
    </section>
  );
}

function NodeMark({ node }: { node: NodeView | undefined }) {
  if (!node) return null;
  if (!node.admitted) return <StateMark kind="attention" word="waits to be admitted" />;
  if (!node.fresh) return <StateMark kind="bad" word="silent" title="no reading comes from it" />;
  if (node.cordon) {
    return <StateMark kind="attention" word="cordoned" title={node.cordon.reason || node.cordon.until} />;
  }
  return null;
}
