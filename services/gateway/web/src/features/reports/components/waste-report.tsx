import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import type { WasteLine } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Holder } from "@/components/holder";
import { Loaded } from "@/components/page";
import { percent } from "@/lib/units";
import { wasteOptions } from "../api/get-waste";
import type { ReportScope } from "../api/report-options";
import { hoursOf } from "../hours";
import { Report } from "./report";

const WASTE: Column<WasteLine>[] = [
  {
    name: t`Holder`,
    sortBy: (line) => line.holder || line.pod,
    cell: (line) => (line.pod ? t`pod ${line.pod}` : <Holder of={line.holder} />),
  },
  {
    name: t`Owner`,
    unit: t`of a pod`,
    sortBy: (line) => line.owner,
    cell: (line) => line.owner || "–",
  },
  { name: t`Namespace`, sortBy: (line) => line.namespace, cell: (line) => line.namespace },
  {
    name: t`Held`,
    unit: "GPU-h",
    isNumber: true,
    sortBy: (line) => line.gpu_hours,
    cell: (line) => hoursOf(line.gpu_hours),
  },
  {
    name: t`Idle`,
    unit: "GPU-h",
    isNumber: true,
    sortBy: (line) => line.idle_hours,
    cell: (line) => hoursOf(line.idle_hours),
  },
  {
    name: t`Idle share`,
    unit: t`% of held`,
    isNumber: true,
    cell: (line) => percent(line.idle_percent),
  },
  {
    name: t`Memory used`,
    unit: t`% of its GPUs'`,
    isNumber: true,
    cell: (line) => percent(line.memory_percent),
  },
  { name: t`Reasons`, cell: (line) => line.because.join("; ") },
];

/** Who held GPUs and hardly used them. */
export function WasteReport({ scope }: { scope: ReportScope }) {
  const query = useQuery(wasteOptions(scope));
  return (
    <Loaded query={query}>
      {(view) => (
        <Report
          title={t`Held but hardly used`}
          empty={t`Everything held was used.`}
          csv={{
            name: "waste",
            columns: [
              "id",
              "namespace",
              "holder",
              "pod",
              "owner",
              "GPU-h",
              t`idle GPU-h`,
              "idle %",
              "memory %",
              "because",
            ],
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
          <DataTable
            label={t`Waste`}
            columns={WASTE}
            rows={view.lines}
            rowKey={(line) => line.reservation_id}
          />
        </Report>
      )}
    </Loaded>
  );
}
