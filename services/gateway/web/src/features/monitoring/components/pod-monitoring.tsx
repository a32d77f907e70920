import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMemo } from "react";
import type { PodSeries, SeriesView } from "@schemas/messages";
import { ChartGrid } from "@/components/chart/chart-grid";
import { DataTable, type Column } from "@/components/data-table";
import { FilterSelect } from "@/components/filter-select";
import { Loaded } from "@/components/page";
import { RangeSelect } from "@/components/range-select";
import { gibibytes, percent, share, whole } from "@/lib/units";
import { useNamespace, useTimeRange, useUrlState } from "@/lib/url-state";
import { usePods } from "../api/get-pods";
import { useSeries, type Filters } from "../api/get-series";
import { KINDS, kindOf, kindWords } from "@/domain/gpu-kinds";
import { MEMORY, UTILIZATION, type ShownMetric } from "../metrics";
import { highestOf, meanOf, podLines } from "../sums";
import { LineChart } from "./line-chart";
import classes from "../monitoring-page.module.css";

const METRICS: ShownMetric[] = [
  { ...UTILIZATION, title: t`Pod GPU utilization` },
  { ...MEMORY, title: t`Pod GPU memory used, of its limit` },
];
const ROW_NAMES = ["namespace", "pod", "node", "GPU"];
const EMPTY = t`No matching Kubernetes pod used a GPU. Agents on cluster nodes report pods once a minute.`;

/** What each pod uses of the GPUs that Kubernetes gave it. */
export function PodMonitoring() {
  const [range] = useTimeRange();
  const [namespace] = useNamespace();
  const [kind, setKind] = useUrlState("kind", "");
  const [podNamespace, setPodNamespace] = useUrlState("pod-namespace", "");
  const [pod, setPod] = useUrlState("pod", "");
  const listed = usePods(range, namespace || null, kindOf(kind));
  const pods = listed.data?.pods ?? [];
  const inNamespace = pods.filter((pod) => !podNamespace || pod.namespace === podNamespace);
  const filters: Filters = {
    node_id: null,
    gpu_model: null,
    kind_of_gpu: kindOf(kind),
    namespace: namespace || null,
    pod_namespace: podNamespace || null,
    pod: pod || null,
  };
  const utilization = useSeries("utilization_percent", "pod", range, filters);
  const memory = useSeries("memory_used_mb", "pod", range, filters);
  return (
    <>
      <div className={classes.filters}>
        <RangeSelect label={t`Time range`} className={classes.range} />
        <FilterSelect
          label={t`GPU type`}
          all={t`All types`}
          data={KINDS}
          value={kindOf(kind) ?? ""}
          onChange={setKind}
        />
        <FilterSelect
          label={t`Pod namespace`}
          all={t`All namespaces`}
          nothingFoundMessage={t`No matches.`}
          searchable
          data={choices(
            pods.map((pod) => pod.namespace),
            podNamespace,
          )}
          value={podNamespace}
          onChange={setPodNamespace}
        />
        <FilterSelect
          label={t`Pod`}
          all={t`All pods`}
          nothingFoundMessage={t`No matches.`}
          searchable
          data={choices(
            inNamespace.map((pod) => pod.pod),
            pod,
          )}
          value={pod}
          onChange={setPod}
        />
      </div>
      {namespace && (
        <p className="dim">
          <Trans>
            Pods of {namespace}&apos;s reservations, and those of the namespace {namespace} in the
            cluster.
          </Trans>
        </p>
      )}
      <LeftOut view={utilization.data} />
      <ChartGrid>
        <OfPods shown={METRICS[0] as ShownMetric} query={utilization} />
        <OfPods shown={METRICS[1] as ShownMetric} query={memory} />
      </ChartGrid>
      <PodTable utilization={utilization.data} memory={memory.data} />
    </>
  );
}

/** In order, each once, with the one that is chosen: it may have had no GPU in this time. */
function choices(names: string[], chosen: string): string[] {
  return [...new Set(chosen ? [...names, chosen] : names)].sort();
}

function LeftOut({ view }: { view: SeriesView | undefined }) {
  if (!view || view.left_out === 0) return null;
  return (
    <p className="dim">
      <Trans>
        {view.pods.length} of {view.pods.length + view.left_out} pods are shown: choose a namespace
        or a pod to see others.
      </Trans>
    </p>
  );
}

function OfPods({ shown, query }: { shown: ShownMetric; query: ReturnType<typeof useSeries> }) {
  const lines = useMemo(() => podLines(query.data?.pods ?? []), [query.data]);
  return (
    <Loaded query={query}>
      {() => <LineChart {...shown} lines={lines} rowNames={ROW_NAMES} empty={EMPTY} />}
    </Loaded>
  );
}

interface PodRow {
  of: PodSeries;
  utilization: number | null;
  memoryMb: number | null;
  highestMb: number | null;
}

const COLUMNS: Column<PodRow>[] = [
  { name: t`Pod`, sortBy: ({ of }) => of.pod, cell: ({ of }) => of.pod },
  { name: t`Namespace`, sortBy: ({ of }) => of.namespace, cell: ({ of }) => of.namespace },
  { name: t`Owner`, sortBy: ({ of }) => of.owner, cell: ({ of }) => of.owner || "–" },
  { name: t`GPU type`, sortBy: ({ of }) => of.kind, cell: ({ of }) => kindWords(of.kind) },
  {
    name: "GPU",
    sortBy: ({ of }) => `${of.node_id} ${of.index}`,
    cell: ({ of }) => `${of.node_id} GPU\u00a0${of.index}`,
  },
  {
    name: t`Share`,
    unit: t`of the GPU`,
    isNumber: true,
    sortBy: ({ of }) => of.percent,
    cell: ({ of }) => percent(of.percent),
  },
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
    name: t`Memory limit`,
    isNumber: true,
    sortBy: ({ of }) => of.memory_given_mb,
    cell: ({ of }) => gibibytes(of.memory_given_mb),
  },
  { name: t`Used`, unit: t`% of its limit`, isNumber: true, cell: formatUsedPart },
  {
    name: t`Reading`,
    title: t`what the usage covers: the pod alone, or at times the whole GPU, which it shares with others`,
    sortBy: ({ of }) => of.reading,
    cell: ({ of }) => (of.reading === "own" ? "pod" : t`whole GPU`),
  },
];

/** Unknown where the reading is not the pod's alone. */
function formatUsedPart({ of, memoryMb }: PodRow): string {
  const part = of.reading === "own" ? share(memoryMb, of.memory_given_mb) : null;
  return part === null ? "–" : `${whole(part * 100)}\u202f%`;
}

const keyOf = (pod: PodSeries) => `${pod.namespace}/${pod.pod} ${pod.node_id}/${pod.device_uuid}`;

function PodTable({
  utilization,
  memory,
}: {
  utilization: SeriesView | undefined;
  memory: SeriesView | undefined;
}) {
  const rows = useMemo(() => {
    const busy = new Map(utilization?.pods.map((pod) => [keyOf(pod), pod.points]));
    return (memory?.pods ?? []).map((of): PodRow => ({
      of,
      utilization: meanOf(busy.get(keyOf(of)) ?? []),
      memoryMb: meanOf(of.points),
      highestMb: highestOf(of.points),
    }));
  }, [memory, utilization]);
  if (rows.length === 0) return null;
  return (
    <section>
      <h2>
        <Trans>Pods in this time range</Trans>
      </h2>
      <DataTable
        label={t`Pods in this time range`}
        columns={COLUMNS}
        rows={rows}
        rowKey={(row) => keyOf(row.of)}
      />
    </section>
  );
}
