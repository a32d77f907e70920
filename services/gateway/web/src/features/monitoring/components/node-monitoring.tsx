import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { SeriesView } from "@schemas/messages";
import { ChartGrid } from "@/components/chart/chart-grid";
import { GpuSeriesChart } from "@/components/chart/gpu-series-chart";
import { DataTable, type Column } from "@/components/data-table";
import { FilterSelect } from "@/components/filter-select";
import { Empty, Loaded } from "@/components/page";
import { RangeSelect } from "@/components/range-select";
import { gpusOptions } from "@/lib/api/get-gpus";
import { nodesOptions } from "@/lib/api/get-nodes";
import { spanOf } from "@/lib/time-range";
import { gibibytes, percent, share, watts, whole } from "@/lib/units";
import { useNamespace, useTimeRange, useUrlState } from "@/lib/url-state";
import { useSeries, type Filters } from "../api/get-series";
import { KINDS, kindOf } from "@/domain/gpu-kinds";
import { METRICS, type ShownMetric } from "../metrics";
import { highestOf, meanOf, nodeLines } from "../sums";
import { FleetMonitoring } from "./fleet-monitoring";
import { LineChart } from "./line-chart";
import classes from "../monitoring-page.module.css";

const ROW_NAMES = ["node"];
/** More lines than this hide each other. */
const MOST_LINES = 16;
const VIEWS = [
  { value: "fleet", label: t`Fleet` },
  { value: "node", label: t`Nodes` },
  { value: "gpu", label: t`GPUs` },
];

/** What the fleet does as a whole, each node's GPUs together, or each of them by itself. */
export function NodeMonitoring() {
  const [range] = useTimeRange();
  const [namespace] = useNamespace();
  const [node, setNode] = useUrlState("node", "");
  const [kind, setKind] = useUrlState("kind", "");
  const [model, setModel] = useUrlState("model", "");
  const [chosen, setBy] = useUrlState("by", "fleet");
  const by = VIEWS.find(({ value }) => value === chosen)?.value ?? "fleet";
  const nodes = useQuery(nodesOptions);
  const gpus = useQuery(gpusOptions);
  const filters: Filters = {
    node_id: node || null,
    gpu_model: model || null,
    kind_of_gpu: kindOf(kind),
    namespace: namespace || null,
    pod_namespace: null,
    pod: null,
  };
  const matches = (gpus.data ?? []).filter(
    (gpu) => (!node || gpu.node_id === node) && (!model || gpu.name === model),
  );
  const lines = by === "gpu" ? matches.length : new Set(matches.map((gpu) => gpu.node_id)).size;
  const tooMany = lines > MOST_LINES && `${lines} ${by === "gpu" ? "GPUs" : "nodes"}`;
  const empty =
    gpus.data?.length === 0
      ? t`No GPUs yet: gpusteward agent adds a host, gpusteward up --simulate simulates a fleet.`
      : namespace
        ? t`No samples of ${namespace}: choose all namespaces above, or a longer range.`
        : t`No samples: remove a filter, or choose a longer range.`;
  return (
    <>
      <div className={classes.filters}>
        <RangeSelect label={t`Time range`} className={classes.range} />
        <FilterSelect
          label={t`Node`}
          all={t`All nodes`}
          searchable
          data={(nodes.data ?? []).map((node) => node.node_id)}
          value={node}
          onChange={setNode}
        />
        <FilterSelect
          label={t`GPU type`}
          all={t`All types`}
          data={KINDS}
          value={kindOf(kind) ?? ""}
          onChange={setKind}
        />
        <FilterSelect
          label={t`GPU model`}
          all={t`All models`}
          data={[...new Set(gpus.data?.map((gpu) => gpu.name))].sort()}
          value={model}
          onChange={setModel}
        />
        <div className={classes.choice}>
          <span>
            <Trans>Show</Trans>
          </span>
          <SegmentedControl
            size="xs"
            aria-label={t`Show`}
            data={VIEWS}
            value={by}
            onChange={setBy}
          />
        </div>
      </div>
      {namespace && (
        <p className="dim">
          <Trans>Only while reservations or pods of {namespace} held the GPUs.</Trans>
        </p>
      )}
      {by === "fleet" ? (
        <FleetMonitoring range={range} filters={filters} empty={empty} />
      ) : tooMany ? (
        <Empty title={t`Too many lines: ${tooMany}`}>
          <Trans>
            Up to {MOST_LINES} are drawn. Choose a node or a model above, or show the fleet.
          </Trans>
        </Empty>
      ) : (
        <ChartGrid>
          {METRICS.map((shown) =>
            by === "gpu" ? (
              <OfGpus
                key={shown.metric}
                shown={shown}
                range={range}
                filters={filters}
                empty={empty}
              />
            ) : (
              <OfNodes
                key={shown.metric}
                shown={shown}
                range={range}
                filters={filters}
                empty={empty}
              />
            ),
          )}
        </ChartGrid>
      )}
      {by !== "gpu" && <NodeTable range={range} filters={filters} />}
    </>
  );
}

interface OfProps {
  shown: ShownMetric;
  range: string;
  filters: Filters;
  empty: string;
}

function OfGpus({ shown, range, filters, empty }: OfProps) {
  const query = useSeries(shown.metric, "gpu", range, filters);
  return (
    <GpuSeriesChart
      {...shown}
      query={query}
      range={range}
      group="monitoring"
      heightPx={260}
      empty={empty}
    />
  );
}

/** Of what a node has more of with each GPU the sum, else the mean. */
const NODE_TITLES: Partial<Record<ShownMetric["metric"], string>> = {
  utilization_percent: t`GPU utilization, mean of the node's GPUs`,
  memory_used_mb: t`GPU memory used, sum of the node's GPUs`,
  temperature_c: t`Temperature, mean of the node's GPUs`,
  power_draw_w: t`Power draw, sum of the node's GPUs`,
};

function OfNodes({ shown, range, filters, empty }: OfProps) {
  const query = useSeries(shown.metric, "node", range, filters);
  const lines = useMemo(() => nodeLines(query.data?.nodes ?? []), [query.data]);
  return (
    <Loaded query={query}>
      {() => (
        <LineChart
          {...shown}
          title={NODE_TITLES[shown.metric] ?? shown.title}
          lines={lines}
          span={spanOf(range, query.dataUpdatedAt)}
          rowNames={ROW_NAMES}
          empty={empty}
        />
      )}
    </Loaded>
  );
}

interface NodeRow {
  node: string;
  gpus: number;
  utilization: number | null;
  memoryMb: number | null;
  highestMb: number | null;
  totalMb: number | null;
  power: number | null;
}

const COLUMNS: Column<NodeRow>[] = [
  { name: t`Node`, sortBy: (row) => row.node, cell: (row) => row.node },
  { name: "GPUs", isNumber: true, sortBy: (row) => row.gpus, cell: (row) => whole(row.gpus) },
  {
    name: t`Utilization`,
    unit: t`mean`,
    isNumber: true,
    sortBy: (row) => row.utilization,
    cell: (row) => percent(row.utilization),
  },
  {
    name: t`Memory used`,
    unit: t`mean`,
    isNumber: true,
    sortBy: (row) => row.memoryMb,
    cell: (row) => gibibytes(row.memoryMb),
  },
  {
    name: t`Highest`,
    unit: t`memory used`,
    isNumber: true,
    sortBy: (row) => row.highestMb,
    cell: (row) => gibibytes(row.highestMb),
  },
  {
    name: t`Memory total`,
    isNumber: true,
    sortBy: (row) => row.totalMb,
    cell: (row) => gibibytes(row.totalMb),
  },
  {
    name: t`Used`,
    unit: t`% of memory, mean`,
    isNumber: true,
    cell: (row) => percentOf(row.memoryMb, row.totalMb),
  },
  {
    name: t`Power`,
    unit: t`mean`,
    isNumber: true,
    sortBy: (row) => row.power,
    cell: (row) => watts(row.power),
  },
];

function percentOf(part: number | null, total: number | null): string {
  const fraction = share(part, total);
  return percent(fraction === null ? null : fraction * 100);
}

function NodeTable({ range, filters }: { range: string; filters: Filters }) {
  const utilization = useSeries("utilization_percent", "node", range, filters);
  const memory = useSeries("memory_used_mb", "node", range, filters);
  const power = useSeries("power_draw_w", "node", range, filters);
  const rows = useMemo(() => {
    const of = (view: SeriesView | undefined, node: string) =>
      view?.nodes.find((series) => series.node_id === node)?.points ?? [];
    return (memory.data?.nodes ?? []).map((node): NodeRow => ({
      node: node.node_id,
      gpus: node.gpus,
      utilization: meanOf(of(utilization.data, node.node_id)),
      memoryMb: meanOf(node.points),
      highestMb: highestOf(node.points),
      totalMb: node.memory_total_mb,
      power: meanOf(of(power.data, node.node_id)),
    }));
  }, [memory.data, power.data, utilization.data]);
  if (rows.length === 0) return null;
  return (
    <section>
      <h2>
        <Trans>Nodes in this time range</Trans>
      </h2>
      <DataTable
        label={t`Nodes in this time range`}
        columns={COLUMNS}
        rows={rows}
        rowKey={(row) => row.node}
      />
    </section>
  );
}
