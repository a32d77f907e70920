import { Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Page } from "@/components/page";
import { SimulatedBadge } from "@/components/simulated-badge";
import { TabList } from "@/components/tab-list";
import { gpusOptions } from "@/lib/api/get-gpus";
import { useUrlState } from "@/lib/url-state";
import { NodeMonitoring } from "./components/node-monitoring";
import { PodMonitoring } from "./components/pod-monitoring";

const VIEWS = [
  { value: "nodes", word: "Nodes", Content: NodeMonitoring },
  { value: "pods", word: "Pods", Content: PodMonitoring },
];

/** History of GPUs by node, and of the pods that had them. */
export function MonitoringPage() {
  const [chosen, setView] = useUrlState("view", "nodes");
  const view = VIEWS.find((candidate) => candidate.value === chosen)?.value ?? "nodes";
  const gpus = useQuery(gpusOptions);
  return (
    <Page title="Monitoring" aside={gpus.data?.some((gpu) => gpu.simulated) && <SimulatedBadge />}>
      <Tabs value={view} onChange={(value) => value && setView(value)} keepMounted={false}>
        <TabList chosen={view}>
          {VIEWS.map(({ value, word }) => (
            <Tabs.Tab key={value} value={value}>
              {word}
            </Tabs.Tab>
          ))}
        </TabList>
        {VIEWS.map(({ value, Content }) => (
          <Tabs.Panel key={value} value={value}>
            <Content />
          </Tabs.Panel>
        ))}
      </Tabs>
    </Page>
  );
}
