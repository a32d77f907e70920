import { Link } from "react-router";
import type { ReservationView } from "@schemas/messages";
import { SimulatedBadge } from "@/components/simulated-badge";
import { StateMark } from "@/components/state-mark";
import type { NodeGpus } from "../fleet-filter";
import { AdmitNode } from "./admit-node";
import { GpuTile } from "./gpu-tile";
import { ServiceActions } from "./service-actions";
import classes from "./node-row.module.css";

export type Holding = ReadonlyMap<string, ReservationView>;

export interface NodeProps extends NodeGpus {
  listedAt: number;
  holding: Holding | undefined;
}

interface NodeHeaderProps extends NodeGpus {
  /** Of the address that shows this node alone. */
  search: string;
  /** Of the map, whose links are one stop of Tab. */
  isShort?: boolean;
}

/** A node's name opens it alone, with all that can be done there. */
export function NodeHeader({ nodeId, node, gpus, search, isShort }: NodeHeaderProps) {
  if (isShort) {
    return (
      <header className={classes.short}>
        <Link to={{ search }} title={`${nodeId} only`} tabIndex={-1}>
          {nodeId}
        </Link>
        <NodeMark node={node} />
      </header>
    );
  }
  return (
    <header className={classes.header}>
      <h2>
        <Link to={{ search }}>{nodeId}</Link>
      </h2>
      {(node?.simulated ?? gpus.some((gpu) => gpu.simulated)) && <SimulatedBadge />}
      <NodeMark node={node} />
      <span className="dim">
        {node ? `${node.gpus_free} of ${node.gpus_total} free` : `${gpus.length} GPUs`}
      </span>
      <span className={classes.actions}>
        {node && !node.admitted && <AdmitNode nodeId={nodeId} />}
        <ServiceActions nodeId={nodeId} isCordoned={Boolean(node?.cordon)} />
      </span>
    </header>
  );
}

export function NodeTiles({ gpus, listedAt, holding }: NodeProps) {
  return (
    <div className={classes.tiles}>
      {gpus.map((gpu) => (
        <GpuTile
          key={gpu.uuid}
          listed={gpu}
          listedAt={listedAt}
          reservation={holding?.get(gpu.reservation_id ?? "")}
        />
      ))}
    </div>
  );
}

function NodeMark({ node }: Pick<NodeGpus, "node">) {
  if (!node) return null;
  if (!node.admitted) return <StateMark kind="attention" word="waiting for admission" />;
  if (!node.fresh) return <StateMark kind="bad" word="silent" title="no readings received" />;
  if (node.cordon) {
    return (
      <StateMark kind="attention" word="cordoned" title={node.cordon.reason || node.cordon.until} />
    );
  }
  return null;
}
