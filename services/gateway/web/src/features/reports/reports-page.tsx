import { Button, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import type {
  FailureLine,
  FailuresView,
  UsageLine,
  UsageView,
  WaitsLine,
  WaitsView,
  WasteLine,
  WasteView,
} from "@schemas/messages";
import { ColorKey } from "@/components/color-key";
import { DataTable, type Column } from "@/components/data-table";
import { Facts } from "@/components/facts";
import { Holder } from "@/components/holder";
import { Meter } from "@/components/meter";
import { Empty, Loaded, Page } from "@/components/page";
import { api } from "@/lib/api-client";
import { csvOf, download, type Cell } from "@/lib/csv";
import { duration, moment, useNow } from "@/lib/time";
import { useMe } from "@/lib/session";
import { rangeWords } from "@/lib/time-range";
import { noLessThan, number, percent, whole, withUnit } from "@/lib/units";
import { useNamespace, useUrlState } from "@/lib/url-state";
import { paths } from "@/lib/paths";
import { REPORT_RANGES, startOf } from "./report-range";
import { partsOf } from "./usage";

const BY_WORDS: Record<string, string> = {
  namespace: "namespace",
  person: "person",
  requester: "requester's label",
  model: "model",
  node: "node",
  pod: "pod",
  owner: "owner of pods",
  kind: "GPU type",
};

/** Where GPU hours went, what was wasted, who waited, what failed. */
export function ReportsPage() {
  const [range, setRange] = useUrlState("report-range", "7d");
  const [by, setBy] = useUrlState("by", "namespace");
  return (
    <Page
      title="Reports"
      actions={
        <>
          <Select
            size="xs"
            w={110}
            aria-label="Days of the reports"
            data={REPORT_RANGES.map((value) => ({ value, label: rangeWords(value) }))}
            value={range}
            allowDeselect={false}
            onChange={(value) => value && setRange(value)}
          />
          <Select
            size="xs"
            w={150}
            aria-label="Usage by"
            data={Object.entries(BY_WORDS).map(([value, word]) => ({ value, label: `by ${word}` }))}
            value={by}
            allowDeselect={false}
            onChange={(value) => value && setBy(value)}
          />
        </>
      }
    >
      <Mine range={range} />
      <Usage range={range} by={by} />
      <Waste range={range} />
      <Waits range={range} />
      <Failures range={range} />
    </Page>
  );
}

function useReport<T>(name: string, range: string, query: Record<string, string> = {}) {
  const [namespace] = useNamespace();
  const start_at = startOf(range, useNow());
  return useQuery({
    queryKey: ["reports", name, start_at, namespace, query],
    queryFn: ({ signal }) =>
      api<T>(`/reports/${name}`, { query: { start_at, namespace: namespace || null, ...query }, signal }),
    placeholderData: (before) => before,
  });
}

/** What the viewer's own namespaces held, against what they may. */
function Mine({ range }: { range: string }) {
  const me = useMe();
  return (
    <section aria-label="My usage">
      {me?.namespaces.map((namespace) => (
        <MyNamespace key={namespace} namespace={namespace} range={range} />
      ))}
    </section>
  );
}

function MyNamespace({ namespace, range }: { namespace: string; range: string }) {
  const query = useReport<UsageView>("gpu-time", range, { by: "namespace", namespace });
  return (
    <Loaded query={query}>
      {(view) => {
        const line = view.lines.find((each) => each.name === namespace);
        const hours = (value: number | undefined) => withUnit(number(Math.round((value ?? 0) * 100) / 100), "GPU-h");
        return (
          <Facts
            facts={[
              ["My usage", namespace],
              ["held", hours(line?.gpu_hours)],
              ["used", hours(line?.used_hours)],
              ["held and idle", hours(line?.idle_hours)],
              ["held in the period before", hours(line?.previous_gpu_hours)],
              ["of its limit", line?.gpu_limit ? percent(line.limit_percent) : "no limit"],
            ]}
          />
        );
      }}
    </Loaded>
  );
}

interface ReportProps {
  title: string;
  csv: { name: string; columns: string[]; rows: Cell[][] };
  empty: string;
  children: ReactNode;
}

function Report({ title, csv, empty, children }: ReportProps) {
  return (
    <section>
      <h2>
        {title}{" "}
        {csv.rows.length > 0 && (
          <Button
            size="compact-xs"
            variant="default"
            aria-label={`${title}: save as CSV`}
            onClick={() => download(`${csv.name}.csv`, csvOf(csv.columns, csv.rows), "text/csv")}
          >
            CSV
          </Button>
        )}
      </h2>
      {csv.rows.length > 0 ? children : <p className="dim">{empty}</p>}
    </section>
  );
}

function Usage({ range, by }: { range: string; by: string }) {
  const query = useReport<UsageView>("gpu-time", range, { by });
  return (
    <Loaded query={query}>
      {(view) => {
        const parts = partsOf(view.total);
        const most = Math.max(...view.lines.map((line) => line.gpu_hours), 0);
        return (
          <>
            <Facts
              facts={[
                ["GPUs", whole(view.gpus)],
                ...parts.map((part): [string, string] => [
                  part.name,
                  `${withUnit(noLessThan(0.001, part.hours), "GPU-h")}, ${percent(part.share * 100)}`,
                ]),
              ]}
            />
            <Facts facts={bookedBy(view)} />
            <Meter label={`GPU time: ${parts.map((part) => `${part.name} ${percent(part.share * 100)}`).join(", ")}`} parts={parts.map((part) => ({ share: part.share, series: part.series, title: part.name }))} />
            <ColorKey label="what the colours of GPU time mean" parts={parts} />
            <Report
              title={`Usage by ${BY_WORDS[view.by] ?? view.by}`}
              empty="No GPU was held in this time."
              csv={{
                name: "usage",
                columns: [view.by, "GPU-h", "used GPU-h", "idle GPU-h", "unknown GPU-h", "energy (Wh)", `cost (${view.currency})`, "GPU-h before"],
                rows: view.lines.map((line) => [
                  line.name,
                  line.gpu_hours,
                  line.used_hours,
                  line.idle_hours,
                  line.unknown_hours,
                  line.energy_wh,
                  line.cost,
                  line.previous_gpu_hours,
                ]),
              }}
            >
              <DataTable label="Usage" columns={usageColumns(view, most)} rows={view.lines} rowKey={(line) => line.name} />
            </Report>
          </>
        );
      }}
    </Loaded>
  );
}

/** The same time, by who had it: the three add up to the GPUs' time too. */
function bookedBy(view: UsageView): [string, string, string][] {
  const { reservations_us, pods_us, nobody_us } = view.booked;
  const hours = (us: number) => withUnit(noLessThan(0.001, us / 3600e6), "GPU-h");
  return [
    ["held by reservations", hours(reservations_us), "with the pods that run for them"],
    ["held by pods", hours(pods_us), "that Kubernetes placed by itself"],
    ["held by nobody", hours(nobody_us), "free, cordoned, or not known"],
  ];
}

function usageColumns(view: UsageView, most: number): Column<UsageLine>[] {
  return [
    { name: titled(BY_WORDS[view.by] ?? view.by), sortBy: (line) => line.name, cell: (line) => line.name },
    {
      name: "Share",
      unit: "used, held and idle, unknown",
      cell: (line) => (
        <div style={{ minWidth: 160, paddingTop: 7 }}>
          <Meter
            label={`${number(line.gpu_hours)} GPU-h`}
            parts={[
              { share: line.used_hours / most, series: 3, title: `used ${number(line.used_hours)} h` },
              { share: line.idle_hours / most, series: 2, title: `held and idle ${number(line.idle_hours)} h` },
              { share: line.unknown_hours / most, series: 8, title: `unknown ${number(line.unknown_hours)} h` },
            ]}
          />
        </div>
      ),
    },
    { name: "Held", unit: "GPU-h", isNumber: true, sortBy: (line) => line.gpu_hours, cell: (line) => hoursOf(line.gpu_hours) },
    { name: "Used", unit: "GPU-h", isNumber: true, sortBy: (line) => line.used_hours, cell: (line) => hoursOf(line.used_hours) },
    { name: "Idle", unit: "GPU-h", isNumber: true, sortBy: (line) => line.idle_hours, cell: (line) => hoursOf(line.idle_hours) },
    { name: "Energy", unit: "kWh", isNumber: true, sortBy: (line) => line.energy_wh, cell: (line) => noLessThan(0.001, line.energy_wh / 1000) },
    { name: "Cost", unit: view.currency, isNumber: true, sortBy: (line) => line.cost, cell: (line) => number(line.cost) },
    {
      name: "Period before",
      unit: "GPU-h held",
      title: "held in a period as long as this one, before it",
      isNumber: true,
      cell: (line) => hoursOf(line.previous_gpu_hours),
    },
  ];
}

const titled = (word: string) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`;

const hoursOf = (hours: number) => noLessThan(0.001, hours);

const WASTE: Column<WasteLine>[] = [
  {
    name: "Holder",
    sortBy: (line) => line.holder || line.pod,
    cell: (line) => (line.pod ? `pod ${line.pod}` : <Holder of={line.holder} />),
  },
  { name: "Owner", unit: "of a pod", sortBy: (line) => line.owner, cell: (line) => line.owner || "–" },
  { name: "Namespace", sortBy: (line) => line.namespace, cell: (line) => line.namespace },
  { name: "Held", unit: "GPU-h", isNumber: true, sortBy: (line) => line.gpu_hours, cell: (line) => hoursOf(line.gpu_hours) },
  { name: "Idle", unit: "GPU-h", isNumber: true, sortBy: (line) => line.idle_hours, cell: (line) => hoursOf(line.idle_hours) },
  { name: "Idle part", unit: "% of held", isNumber: true, cell: (line) => percent(line.idle_percent) },
  { name: "Memory used", unit: "% of its GPUs'", isNumber: true, cell: (line) => percent(line.memory_percent) },
  { name: "Because", cell: (line) => line.because.join("; ") },
];

function Waste({ range }: { range: string }) {
  const query = useReport<WasteView>("waste", range);
  return (
    <Loaded query={query}>
      {(view) => (
        <Report
          title="Held and hardly used"
          empty="Nothing was held without being used."
          csv={{
            name: "waste",
            columns: ["id", "namespace", "holder", "pod", "owner", "GPU-h", "idle GPU-h", "idle %", "memory %", "because"],
            rows: view.lines.map((line) => [
              line.reservation_id,
              line.namespace,
              line.holder,
              line.pod,
              line.owner,
              line.gpu_hours,
              line.idle_hours,
              line.idle_percent,
              line.memory_percent,
              line.because.join("; "),
            ]),
          }}
        >
          <DataTable label="Waste" columns={WASTE} rows={view.lines} rowKey={(line) => line.reservation_id} />
        </Report>
      )}
    </Loaded>
  );
}

/** Why they wait is what the queue tells. */
function WaitingNow({ line }: { line: WaitsLine }) {
  if (line.waiting === 0) return "0";
  return <Link to={{ pathname: paths.queue(), search: `?namespace=${line.namespace}` }}>{whole(line.waiting)}, why</Link>;
}

const WAITS: Column<WaitsLine>[] = [
  { name: "Namespace", sortBy: (line) => line.namespace, cell: (line) => line.namespace },
  { name: "Requests", isNumber: true, sortBy: (line) => line.requests, cell: (line) => whole(line.requests) },
  { name: "Granted", isNumber: true, cell: (line) => whole(line.granted) },
  { name: "Waiting now", isNumber: true, cell: (line) => <WaitingNow line={line} /> },
  { name: "Ended ungranted", isNumber: true, cell: (line) => whole(line.ended) },
  { name: "Waited", unit: "p50", isNumber: true, sortBy: (line) => line.p50_seconds, cell: (line) => duration(line.p50_seconds) },
  { name: "p95", isNumber: true, sortBy: (line) => line.p95_seconds, cell: (line) => duration(line.p95_seconds) },
  { name: "Longest", isNumber: true, sortBy: (line) => line.longest_seconds, cell: (line) => duration(line.longest_seconds) },
  {
    name: "Forecast missed by",
    unit: "p50",
    title: "between the start that was expected as a request began to wait, and its grant",
    isNumber: true,
    cell: (line) => duration(line.start_off_p50_seconds),
  },
];

function Waits({ range }: { range: string }) {
  const query = useReport<WaitsView>("waits", range);
  return (
    <Loaded query={query}>
      {(view) => (
        <Report
          title="How long requests waited"
          empty="Nobody asked for a GPU in this time."
          csv={{
            name: "waits",
            columns: ["namespace", "requests", "granted", "waiting", "ended", "p50 (s)", "p95 (s)", "longest (s)", "forecast missed by, p50 (s)"],
            rows: view.lines.map((line) => [
              line.namespace,
              line.requests,
              line.granted,
              line.waiting,
              line.ended,
              line.p50_seconds,
              line.p95_seconds,
              line.longest_seconds,
              line.start_off_p50_seconds,
            ]),
          }}
        >
          <DataTable label="Waits" columns={WAITS} rows={view.lines} rowKey={(line) => line.namespace} />
        </Report>
      )}
    </Loaded>
  );
}

const FAILURES: Column<FailureLine>[] = [
  { name: "What failed", sortBy: (line) => line.of, cell: (line) => (line.of === "attempt" ? "attempt of an experiment" : line.of) },
  { name: "Because", sortBy: (line) => line.reason, cell: (line) => line.reason.replaceAll("_", " ") },
  { name: "Count", isNumber: true, sortBy: (line) => line.count, cell: (line) => whole(line.count) },
  { name: "Last", sortBy: (line) => line.last_at, cell: (line) => moment(line.last_at) },
  { name: "The last one said", isLong: true, cell: (line) => line.message },
];

function Failures({ range }: { range: string }) {
  const query = useReport<FailuresView>("failures", range);
  return (
    <Loaded query={query}>
      {(view) =>
        view.lines.length === 0 ? (
          <Empty title="No failure">
            All that <Link to={paths.tasks()}>ran</Link> in this time ended as planned.
          </Empty>
        ) : (
          <Report
            title="Failures"
            empty=""
            csv={{
              name: "failures",
              columns: ["of", "reason", "count", "last at", "message"],
              rows: view.lines.map((line) => [line.of, line.reason, line.count, line.last_at, line.message]),
            }}
          >
            <DataTable label="Failures" columns={FAILURES} rows={view.lines} rowKey={(line) => `${line.of} ${line.reason}`} />
          </Report>
        )
      }
    </Loaded>
  );
}
