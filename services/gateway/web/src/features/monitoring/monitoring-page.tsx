import { Select, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import type { GpuView, NodeView, SeriesMetric, SeriesView } from "@schemas/messages";
import { ChartGrid } from "@/components/chart/chart-grid";
import { GpuSeriesChart } from "@/components/chart/gpu-series-chart";
import { Page } from "@/components/page";
import { RangeSelect } from "@/components/range-select";
import { SimulatedBadge } from "@/components/simulated-badge";
import { allOf, api } from "@/lib/api-client";
import { rangeQuery } from "@/lib/time-range";
import { useTimeRange, useUrlState } from "@/lib/url-state";
import classes from "./monitoring-page.module.css";

const METRICS: { metric: SeriesMetric; title: string; unit: string; maximum?: number }[] = [
  { metric: "utilization_percent", title: "GPU utilization", unit: "%", maximum: 100 },
  { metric: "memory_used_mb", title: "Memory used", unit: "GiB" },
  { metric: "temperature_c", title: "Temperature", unit: "°C" },
  { metric: "power_draw_w", title: "Power draw", unit: "W" },
];

const REFRESH_MS = 10_000;
const SETTLE_MS = 400;

interface Filters {
  node_id: string | null;
  gpu_model: string | null;
  pod_namespace: string | null;
  pod: string | null;
}

/** History of GPUs by node, by model, or of the pods that had them. */
export function MonitoringPage() {
  const [range] = useTimeRange();
  const [node, setNode] = useUrlState("node", "");
  const [model, setModel] = useUrlState("model", "");
  const [podNamespace, setPodNamespace] = useUrlState("pod-namespace", "");
  const [pod, setPod] = useUrlState("pod", "");
  const nodes = useQuery({
    queryKey: ["nodes"],
    queryFn: ({ signal }) => allOf<"nodes", NodeView>("/nodes", "nodes", { signal }),
  });
  const gpus = useQuery({
    queryKey: ["gpus"],
    queryFn: ({ signal }) => allOf<"gpus", GpuView>("/gpus", "gpus", { signal }),
  });
  const [filters] = useDebouncedValue(
    {
      node_id: node || null,
      gpu_model: model || null,
      pod_namespace: podNamespace || null,
      pod: pod || null,
    },
    SETTLE_MS,
  );
  return (
    <Page title="Monitoring" aside={gpus.data?.some((gpu) => gpu.simulated) && <SimulatedBadge />}>
      <div className={classes.filters}>
        <RangeSelect label="Time range" className={classes.range} />
        <Select
          size="xs"
          label="Node"
          placeholder="All nodes"
          clearable
          searchable
          data={(nodes.data ?? []).map((each) => each.node_id)}
          value={node || null}
          onChange={(value) => setNode(value ?? "")}
        />
        <Select
          size="xs"
          label="GPU model"
          placeholder="All models"
          clearable
          data={[...new Set(gpus.data?.map((gpu) => gpu.name))].sort()}
          value={model || null}
          onChange={(value) => setModel(value ?? "")}
        />
        <TextInput
          size="xs"
          label="Namespace of pods"
          value={podNamespace}
          onChange={(event) => setPodNamespace(event.currentTarget.value.trim())}
        />
        <TextInput
          size="xs"
          label="Pod"
          value={pod}
          onChange={(event) => setPod(event.currentTarget.value.trim())}
        />
      </div>
      <ChartGrid>
        {METRICS.map((metric) => (
          <History
            key={metric.metric}
            {...metric}
            range={range}
            filters={filters}
            empty={
              gpus.data?.length === 0
                ? "No GPU has reported yet: gpusteward agent joins a host, gpusteward up --simulate makes up a fleet."
                : "No sample fits: take a filter away, or a longer range."
            }
          />
        ))}
      </ChartGrid>
    </Page>
  );
}

type HistoryProps = (typeof METRICS)[number] & { range: string; filters: Filters; empty: string };

function History({ range, filters, ...shown }: HistoryProps) {
  const { metric } = shown;
  const query = useQuery({
    queryKey: ["series", metric, range, filters],
    queryFn: ({ signal }) =>
      api<SeriesView>("/series", { query: { metric, ...rangeQuery(range, Date.now()), points: 240, ...filters }, signal }),
    refetchInterval: REFRESH_MS,
    placeholderData: (before) => before,
  });
  return (
    <GpuSeriesChart
      {...shown}
      query={query}
      group="monitoring"
      heightPx={260}
    />
  );
}
