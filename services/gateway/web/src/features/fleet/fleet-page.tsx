import type { NodeView } from "@schemas/messages";
import { Empty, Loaded, Page } from "@/components/page";
import { SimulatedBadge } from "@/components/simulated-badge";
import { useGpus, useNodes } from "./api/use-fleet";
import { CustomDevices } from "./components/custom-devices";
import { FleetContent } from "./components/fleet-content";
import { InviteServer } from "./components/invite-server";
import { SummaryStrip } from "./components/summary-strip";

const NO_NODES: NodeView[] = [];

export function FleetPage() {
  const gpus = useGpus();
  const nodes = useNodes();
  const isSimulated = gpus.data?.some((gpu) => gpu.simulated);
  return (
    <Page title="Fleet" aside={isSimulated && <SimulatedBadge />} actions={<InviteServer />}>
      <Loaded query={gpus}>
        {(all) =>
          all.length === 0 ? (
            <Empty title="No GPUs yet">
              <code>gpusteward up --simulate</code> simulates a fleet;{" "}
              <code>gpusteward doctor</code> checks this host;{" "}
              <code>gpusteward node invite NAME</code> adds another server.
            </Empty>
          ) : (
            <>
              <SummaryStrip gpus={all} listedAt={gpus.dataUpdatedAt} />
              <FleetContent
                gpus={all}
                nodes={nodes.data ?? NO_NODES}
                listedAt={gpus.dataUpdatedAt}
              />
            </>
          )
        }
      </Loaded>
      <CustomDevices />
    </Page>
  );
}
