import { t } from "@lingui/core/macro";
import { Link } from "react-router";
import type { ReservationView } from "@schemas/messages";
import { SimulatedBadge } from "@/components/simulated-badge";
import { NodeMark } from "@/components/nodes/node-mark";
import { paths } from "@/lib/paths";
import { useSharedSearch } from "@/lib/url-state";
import type { NodeGpus } from "../fleet-filter";
import { AdmitNode } from "@/components/nodes/admit-node";
import { GpuTile } from "./gpu-tile";
import { ServiceActions } from "@/components/nodes/service-actions";
import classes from "./node-row.module.css";

export type Holding = ReadonlyMap<string, ReservationView>;

export interface NodeProps extends NodeGpus {
  listedAt: number;
  holding: Holding | undefined;
}

interface NodeHeaderProps extends NodeGpus {
  /** Some of the fleet are real: which are simulated is said at each. */
  isMixed?: boolean;
  /** Of the map, whose links are one stop of Tab. */
  isShort?: boolean;
}

/** A node's name opens its page, with all that can be done there. */
export function NodeHeader({ nodeId, node, gpus, isShort, isMixed }: NodeHeaderProps) {
  const search = useSharedSearch();
  const to = { pathname: paths.node(nodeId), search };
  if (isShort) {
    return (
      <header className={classes.short}>
        <Link to={to} title={t`Node ${nodeId}`} tabIndex={-1}>
          {nodeId}
        </Link>
        <NodeMark node={node} />
      </header>
    );
  }
  return (
    <header className={classes.header}>
      <h2>
        <Link to={to}>{nodeId}</Link>
      </h2>
      {isMixed && (node?.simulated ?? gpus.some((gpu) => gpu.simulated)) && <SimulatedBadge />}
      <NodeMark node={node} />
      <span className="dim">
        {node ? t`${node.gpus_free} of ${node.gpus_total} free` : t`${gpus.length} GPUs`}
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
