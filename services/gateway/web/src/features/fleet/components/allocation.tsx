import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { memo } from "react";
import { Link } from "react-router";
import { NodeMark } from "@/components/nodes/node-mark";
import { heldUntil } from "@/domain/held-until";
import { groupBy } from "@/lib/group-by";
import { paths } from "@/lib/paths";
import { useNow } from "@/lib/time";
import { useSharedSearch } from "@/lib/url-state";
import { gpuCount, isFree, segmentsOf, type Segment } from "../allocation";
import type { NodeGpus } from "../fleet-filter";
import type { Holding } from "./node-row";
import classes from "./allocation.module.css";

interface AllocationProps {
  groups: NodeGpus[];
  holding: Holding | undefined;
}

/** Who has which GPUs of each node, to scale; what is wholly free is told in a line. */
export function Allocation({ groups, holding }: AllocationProps) {
  const taken = groups.filter(({ gpus, node }) => !isFree(gpus) || !node?.fresh);
  const free = groups.filter((group) => !taken.includes(group));
  const most = Math.max(...taken.map(({ gpus }) => gpus.length), 1);
  return (
    <>
      <ul className={classes.list}>
        {taken.map((group) => (
          <Line key={group.nodeId} group={group} most={most} holding={holding} />
        ))}
      </ul>
      <FreeNodes groups={free} />
    </>
  );
}

interface LineProps {
  group: NodeGpus;
  /** GPUs of the largest node, which has the whole width. */
  most: number;
  holding: Holding | undefined;
}

const Line = memo(function Line({ group, most, holding }: LineProps) {
  const search = useSharedSearch();
  const { nodeId, node, gpus } = group;
  const segments = segmentsOf(gpus);
  const width = gpus.length > most / 2 ? 100 : Math.max(25, (100 * gpus.length) / most);
  return (
    <li className={classes.line} aria-label={t`node ${nodeId}`}>
      <span className={classes.name}>
        <Link to={{ pathname: paths.node(nodeId), search }}>{nodeId}</Link>
        <NodeMark node={node} />
      </span>
      <span className={classes.bar} style={{ maxWidth: `${width}%` }}>
        {segments.map((segment) => (
          <Part key={segment.key} nodeId={nodeId} segment={segment} holding={holding} />
        ))}
      </span>
    </li>
  );
});

interface PartProps {
  nodeId: string;
  segment: Segment;
  holding: Holding | undefined;
}

function Part({ nodeId, segment, holding }: PartProps) {
  const now = useNow();
  const search = useSharedSearch();
  const { kind, word, gpus, indexes, uuid, reservationId } = segment;
  const reservation = holding?.get(reservationId ?? "");
  const until = reservation && heldUntil(reservation, now);
  const text = [word, gpuCount(gpus), until].filter(Boolean).join(", ");
  const to = reservation
    ? `${paths.reservations()}?open=${reservation.reservation_id}`
    : { pathname: paths.gpu(nodeId, uuid), search };
  const first = indexes[0] ?? 0;
  const last = indexes.at(-1) ?? first;
  return (
    <Link
      to={to}
      className={classes.part}
      data-kind={kind}
      style={{ flexGrow: gpus }}
      title={`${text}; ${first === last ? t`GPU ${first}` : t`GPUs ${first}-${last}`}`}
    >
      <strong>{word}</strong>
      <span>{[gpuCount(gpus), until].filter(Boolean).join(", ")}</span>
    </Link>
  );
}

function FreeNodes({ groups }: { groups: NodeGpus[] }) {
  const search = useSharedSearch();
  if (groups.length === 0) return null;
  const sum = groups.reduce((all, { gpus }) => all + gpus.length, 0);
  const byModel = groupBy(groups, ({ gpus }) => `${gpus[0]?.name ?? ""}, ${gpuCount(gpus.length)}`);
  return (
    <section>
      <h2>
        {groups.length === 1 ? t`1 node is free` : t`${groups.length} nodes are free`}:{" "}
        {gpuCount(sum)}
      </h2>
      {[...byModel].map(([model, ofModel]) => (
        <p key={model} className={classes.free}>
          <span className="dim">
            <Trans>{model} each:</Trans>
          </span>{" "}
          {ofModel.map(({ nodeId }) => (
            <Link key={nodeId} to={{ pathname: paths.node(nodeId), search }}>
              {nodeId}
            </Link>
          ))}
        </p>
      ))}
    </section>
  );
}
