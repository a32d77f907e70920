import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { WaitsLine } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Loaded } from "@/components/page";
import { paths } from "@/lib/paths";
import { duration } from "@/lib/time";
import { whole } from "@/lib/units";
import { waitsOptions } from "../api/get-waits";
import type { ReportScope } from "../api/report-options";
import { Report } from "./report";

/** Why they wait is what the queue tells. */
function WaitingNow({ line }: { line: WaitsLine }) {
  if (line.waiting === 0) return "0";
  return (
    <Link to={{ pathname: paths.queue(), search: `?namespace=${line.namespace}` }}>
      <Trans>{whole(line.waiting)}, why</Trans>
    </Link>
  );
}

const WAITS: Column<WaitsLine>[] = [
  { name: t`Namespace`, sortBy: (line) => line.namespace, cell: (line) => line.namespace },
  {
    name: t`Requests`,
    isNumber: true,
    sortBy: (line) => line.requests,
    cell: (line) => whole(line.requests),
  },
  { name: t`Granted`, isNumber: true, cell: (line) => whole(line.granted) },
  { name: t`Waiting now`, isNumber: true, cell: (line) => <WaitingNow line={line} /> },
  { name: t`Not granted`, isNumber: true, cell: (line) => whole(line.ended) },
  {
    name: t`Waited`,
    unit: "p50",
    isNumber: true,
    sortBy: (line) => line.p50_seconds,
    cell: (line) => duration(line.p50_seconds),
  },
  {
    name: "p95",
    isNumber: true,
    sortBy: (line) => line.p95_seconds,
    cell: (line) => duration(line.p95_seconds),
  },
  {
    name: t`Longest`,
    isNumber: true,
    sortBy: (line) => line.longest_seconds,
    cell: (line) => duration(line.longest_seconds),
  },
  {
    name: t`Forecast error`,
    unit: "p50",
    title: t`between the start forecast when the request was queued and its grant`,
    isNumber: true,
    cell: (line) => duration(line.start_off_p50_seconds),
  },
];

/** Waiting times for their GPUs. */
export function WaitsReport({ scope }: { scope: ReportScope }) {
  const query = useQuery(waitsOptions(scope));
  return (
    <Loaded query={query}>
      {(view) => (
        <Report
          title={t`Waiting times`}
          empty={t`No GPUs were requested in this time range.`}
          csv={{
            name: "waits",
            columns: [
              "namespace",
              "requests",
              "granted",
              "waiting",
              "ended",
              "p50 (s)",
              "p95 (s)",
              t`longest (s)`,
              t`forecast error, p50 (s)`,
            ],
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
          <DataTable
            label={t`Waits`}
            columns={WAITS}
            rows={view.lines}
            rowKey={(line) => line.namespace}
          />
        </Report>
      )}
    </Loaded>
  );
}
