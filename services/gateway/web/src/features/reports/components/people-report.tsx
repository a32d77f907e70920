import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import type { UsageLine } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Loaded } from "@/components/page";
import { usageOptions } from "../api/get-usage";
import type { ReportScope } from "../api/report-options";
import { amountColumn } from "../amount-column";
import { totalOf } from "../usage";
import { Report } from "./report";

const MOST = 10;

/** Who held the most, as people; all of them where usage is asked for by person. */
export function PeopleReport({ scope }: { scope: ReportScope }) {
  const query = useQuery(usageOptions(scope, "person"));
  return (
    <Loaded query={query}>
      {(view) => {
        const columns: Column<UsageLine>[] = [
          { name: t`Person`, sortBy: (line) => line.name, cell: (line) => line.name },
          amountColumn(t`Held`, "GPU-h", (line) => line.gpu_hours),
          amountColumn(t`Cost`, view.currency, (line) => line.cost),
          amountColumn(t`Idle`, "GPU-h", (line) => line.idle_hours),
        ];
        return (
          <Report
            title={t`People`}
            empty={t`No GPUs were held in this time range.`}
            csv={{
              name: "people",
              columns: ["person", "GPU-h", `cost (${view.currency})`, "idle GPU-h"],
              rows: view.lines.map((line) => [
                line.name,
                line.gpu_hours,
                line.cost,
                line.idle_hours,
              ]),
            }}
          >
            <DataTable
              label={t`People`}
              columns={columns}
              rows={view.lines.slice(0, MOST)}
              rowKey={(line) => line.name}
              total={view.lines.length > 1 ? totalOf(view.lines, t`Total`) : undefined}
            />
          </Report>
        );
      }}
    </Loaded>
  );
}
