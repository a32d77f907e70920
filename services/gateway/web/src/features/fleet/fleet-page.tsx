import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { Suspense } from "react";
import { latePart } from "@/lib/parts";
import type { NodeView } from "@schemas/messages";
import { withLaterStyles } from "@/components/later-styles";
import { Loaded, Page } from "@/components/page";
import { SimulatedBadge } from "@/components/simulated-badge";
import { clusterDevicesOptions } from "./api/get-cluster-devices";
import { useGpus, useNodes } from "./api/use-fleet";
import { FleetContent } from "./components/fleet-content";
import { InviteServer } from "@/components/nodes/invite-server";
import { SummaryStrip } from "./components/summary-strip";

const CustomDevices = latePart(async () => withLaterStyles(import("./components/custom-devices")));
const FirstSteps = latePart(async () => ({
  default: (await import("./components/first-steps")).FirstSteps,
}));
const NO_NODES: NodeView[] = [];

export function FleetPage() {
  const gpus = useGpus();
  const nodes = useNodes();
  const devices = useQuery(clusterDevicesOptions).data;
  const isSimulated = gpus.data?.some((gpu) => gpu.simulated);
  return (
    <Page title={t`Fleet`} aside={isSimulated && <SimulatedBadge />} actions={<InviteServer />}>
      <Loaded query={gpus}>
        {(all) =>
          all.length === 0 ? (
            <Suspense>
              <FirstSteps nodes={nodes.data ?? NO_NODES} />
            </Suspense>
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
      {devices && devices.length > 0 && (
        <Suspense>
          <CustomDevices devices={devices} />
        </Suspense>
      )}
    </Page>
  );
}
