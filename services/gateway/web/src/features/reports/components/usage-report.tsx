import { useQuery } from "@tanstack/react-query";
import type { UsageLine, UsageView } from "@schemas/messages";
import { ColorKey } from "@/components/color-key";
import { DataTable, type Column } from "@/components/data-table";
import { Facts } from "@/components/facts";
import { Meter } from "@/components/meter";
import { Loaded } from "@/components/page";
import { noLessThan, number, percent, whole, withUnit } from "@/lib/units";
import { usageOptions } from "../api/get-usage";
import type { ReportScope } from "../api/report-options";
import { hoursOf } from "../hours";
import { BY_WORDS, partsOf } from "../usage";
import { Report } from "./report";

/** What became of the GPU time, and whose it was. */
export function UsageReport({ scope, by }: { scope: ReportScope; by: string }) {
  const query = useQuery(usageOptions(scope, by));
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
            <Meter
              label={`GPU time: ${parts.map((part) => `${part.name} ${percent(part.share * 100)}`).join(", ")}`}
              parts={parts.map((part) => ({
                share: part.share,
                series: part.series,
                title: part.name,
              }))}
            />
            <ColorKey label="legend of GPU time" parts={parts} />
            <Report
              title={`Usage by ${BY_WORDS[view.by] ?? view.by}`}
              empty="No GPUs were held in this time range."
              csv={{
                name: "usage",
                columns: [
                  view.by,
                  "GPU-h",
                  "used GPU-h",
                  "idle GPU-h",
                  "unknown GPU-h",
                  "energy (Wh)",
                  `cost (${view.currency})`,
                  "GPU-h before",
                ],
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
              <DataTable
                label="Usage"
                columns={usageColumns(view, most)}
                rows={view.lines}
                rowKey={(line) => line.name}
              />
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
    ["held by reservations", hours(reservations_us), "including the pods that run for them"],
    ["held by pods", hours(pods_us), "placed by Kubernetes itself"],
    ["held by nobody", hours(nobody_us), "free, cordoned or unknown"],
  ];
}

function usageColumns(view: UsageView, most: number): Column<UsageLine>[] {
  return [
    {
      name: capitalize(BY_WORDS[view.by] ?? view.by),
      sortBy: (line) => line.name,
      cell: (line) => line.name,
    },
    {
      name: "Share",
      unit: "used, held and idle, unknown",
      cell: (line) => (
        <div style={{ minWidth: 160, paddingTop: 7 }}>
          <Meter
            label={`${number(line.gpu_hours)} GPU-h`}
            parts={[
              {
                share: line.used_hours / most,
                series: 3,
                title: `used ${number(line.used_hours)} h`,
              },
              {
                share: line.idle_hours / most,
                series: 2,
                title: `held and idle ${number(line.idle_hours)} h`,
              },
              {
                share: line.unknown_hours / most,
                series: 8,
                title: `unknown ${number(line.unknown_hours)} h`,
              },
            ]}
          />
        </div>
      ),
    },
    {
      name: "Held",
      unit: "GPU-h",
      isNumber: true,
      sortBy: (line) => line.gpu_hours,
      cell: (line) => hoursOf(line.gpu_hours),
    },
    {
      name: "Used",
      unit: "GPU-h",
      isNumber: true,
      sortBy: (line) => line.used_hours,
      cell: (line) => hoursOf(line.used_hours),
    },
    {
      name: "Idle",
      unit: "GPU-h",
      isNumber: true,
      sortBy: (line) => line.idle_hours,
      cell: (line) => hoursOf(line.idle_hours),
    },
    {
      name: "Energy",
      unit: "kWh",
      isNumber: true,
      sortBy: (line) => line.energy_wh,
      cell: (line) => noLessThan(0.001, line.energy_wh / 1000),
    },
    {
      name: "Cost",
      unit: view.currency,
      isNumber: true,
      sortBy: (line) => line.cost,
      cell: (line) => number(line.cost),
    },
    {
      name: "Previous period",
      unit: "GPU-h held",
      title: "held in the preceding period of the same length",
      isNumber: true,
      cell: (line) => hoursOf(line.previous_gpu_hours),
    },
  ];
}

const capitalize = (word: string) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`;
