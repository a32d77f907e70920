import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "react-router";
import type { GpuView, NodeView } from "@schemas/messages";
import { Facts } from "@/components/facts";
import { NodeActions } from "@/components/nodes/node-actions";
import { NodeMark } from "@/components/nodes/node-mark";
import { Loaded, Page } from "@/components/page";
import { SimulatedBadge } from "@/components/simulated-badge";
import { Tabbed } from "@/components/tabbed";
import { When } from "@/components/when";
import { holdingOptions } from "@/lib/api/get-holding";
import { paths } from "@/lib/paths";
import { gibibytes, UNKNOWN, whole } from "@/lib/units";
import { useUrlState } from "@/lib/url-state";
import { nodeOptions } from "./api/get-node";
import { useGpus } from "./api/use-fleet";
import { NodeAgent } from "./components/node-agent";
import { NodeEvents } from "./components/node-events";
import { NodeProcesses } from "./components/node-processes";
import { NodeReservations } from "./components/node-reservations";
import { NodeTiles } from "./components/node-row";
import { SilentNode } from "./components/silent-node";
import { Topology } from "./components/topology";

const NO_GPUS: GpuView[] = [];

export function NodePage() {
  const { nodeId = "" } = useParams();
  const node = useQuery(nodeOptions(nodeId));
  if (node.data) return <NodeContent node={node.data} error={node.error} />;
  return (
    <Page title={t`Node ${nodeId}`}>
      <Loaded query={node}>{() => null}</Loaded>
    </Page>
  );
}

interface TabProps {
  node: NodeView;
  gpus: GpuView[];
  listedAt: number;
}

const TABS = [
  { value: "gpus", word: t`GPUs`, Content: Gpus },
  {
    value: "topology",
    word: t`Topology`,
    Content: ({ node, gpus }: TabProps) => <Topology gpus={gpus} links={node.links} />,
  },
  { value: "processes", word: t`Processes`, Content: NodeProcesses },
  { value: "reservations", word: t`Reservations`, Content: NodeReservations },
  { value: "events", word: t`Events`, Content: NodeEvents },
  { value: "agent", word: t`Agent`, Content: NodeAgent },
];

/** One server: what it is, how it does, and all that can be done with it. */
function NodeContent({ node, error }: { node: NodeView; error: Error | null }) {
  const navigate = useNavigate();
  const gpus = useGpus();
  const [chosen, setTab] = useUrlState("tab", "gpus");
  const tab = TABS.find(({ value }) => value === chosen)?.value ?? "gpus";
  const { node_id: nodeId, host } = node;
  const ofNode = gpus.data?.filter((gpu) => gpu.node_id === nodeId) ?? NO_GPUS;
  const labels = Object.entries(node.labels);
  return (
    <Page
      title={t`Node ${nodeId}`}
      aside={
        <>
          {node.simulated && <SimulatedBadge />}
          <NodeMark node={node} isAlways />
        </>
      }
      actions={<NodeActions node={node} isAsked onRemoved={() => void navigate(paths.fleet())} />}
    >
      {!node.fresh && node.admitted && <SilentNode node={node} error={error} />}
      {node.cordon && (
        <p>
          <Trans>
            Cordoned{node.cordon.set_by && t` by ${node.cordon.set_by}`}
            {node.cordon.reason && `: ${node.cordon.reason}`}. No new requests are granted here.
          </Trans>
        </p>
      )}
      <Facts
        facts={[
          [t`GPUs free`, t`${node.gpus_free} of ${node.gpus_total}`],
          [t`last seen`, <When key="seen" at={node.last_seen_at} isRelative />],
          [t`agent`, host?.release ?? UNKNOWN],
          [t`driver`, host?.driver_version ?? UNKNOWN],
          ["CUDA", host?.cuda_driver_version ?? UNKNOWN],
          [t`operating system`, host?.operating_system ?? UNKNOWN],
          ["CPUs", whole(host?.cpu_count)],
          [t`host memory`, gibibytes(host?.memory_total_mb)],
          [t`source of readings`, node.source],
          [
            t`labels`,
            labels.length > 0
              ? labels.map(([key, value]) => `${key}=${value}`).join(", ")
              : t`none`,
          ],
        ]}
      />
      <Tabbed
        tabs={TABS.map(({ value, word, Content }) => ({
          value,
          word,
          content: <Content node={node} gpus={ofNode} listedAt={gpus.dataUpdatedAt} />,
        }))}
        chosen={tab}
        onChoose={setTab}
        mt="md"
      />
    </Page>
  );
}

function Gpus({ node, gpus, listedAt }: TabProps) {
  const holding = useQuery(holdingOptions).data;
  if (gpus.length === 0)
    return (
      <p className="dim">
        <Trans>This node has no GPU that can be read.</Trans>
      </p>
    );
  return (
    <NodeTiles
      nodeId={node.node_id}
      node={node}
      gpus={gpus}
      listedAt={listedAt}
      holding={holding}
    />
  );
}
