import { useQuery } from "@tanstack/react-query";
import type { NodeView } from "@schemas/messages";
import { Empty, Loaded, Page } from "@/components/page";
import { SimulatedBadge } from "@/components/simulated-badge";
import { gpusOptions, nodesOptions } from "./api/get-fleet";
import { CustomDevices } from "./components/custom-devices";
import { FleetContent } from "./components/fleet-content";
import { SummaryStrip } from "./components/summary-strip";

const NO_NODES: NodeView[] = [];

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
              <FleetContent gpus={known} nodes={nodes.data ?? NO_NODES} listedAt={gpus.dataUpdatedAt} />
            </>
          )
        }
      </Loaded>
      <CustomDevices />
    </Page>
  );
}
