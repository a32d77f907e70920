import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { DownloadCharts } from "@/components/chart/download-charts";
import { Page } from "@/components/page";
import { SimulatedBadge } from "@/components/simulated-badge";
import { Tabbed } from "@/components/tabbed";
import { gpusOptions } from "@/lib/api/get-gpus";
import { useUrlState } from "@/lib/url-state";
import { NodeMonitoring } from "./components/node-monitoring";
import { PodMonitoring } from "./components/pod-monitoring";

const VIEWS = [
  { value: "nodes", word: t`Nodes`, Content: NodeMonitoring },
  { value: "pods", word: t`Pods`, Content: PodMonitoring },
];

/** History of GPUs by node, and of the pods that had them. */
export function MonitoringPage() {
  const [chosen, setView] = useUrlState("view", "nodes");
  const view = VIEWS.find((candidate) => candidate.value === chosen)?.value ?? "nodes";
  const gpus = useQuery(gpusOptions);
  return (
    <Page
      title={t`Monitoring`}
      actions={<DownloadCharts />}
      aside={gpus.data?.some((gpu) => gpu.simulated) && <SimulatedBadge />}
    >
      <Tabbed
        tabs={VIEWS.map(({ value, word, Content }) => ({ value, word, content: <Content /> }))}
        chosen={view}
        onChoose={setView}
      />
    </Page>
  );
}
