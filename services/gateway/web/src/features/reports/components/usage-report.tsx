import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import type { NamespaceUse, UsageLine, UsageView } from "@schemas/messages";
import { ColorKey } from "@/components/color-key";
import { DataTable, type Column } from "@/components/data-table";
import { Facts } from "@/components/facts";
import { Meter } from "@/components/meter";
import { Loaded } from "@/components/page";
import { namespacesOptions } from "@/lib/api/get-namespaces";
import { number, percent, whole, withUnit } from "@/lib/units";
import { usageOptions } from "../api/get-usage";
import type { ReportScope } from "../api/report-options";
import { amountColumn } from "../amount-column";
import { hoursOf } from "../hours";
import { BY_WORDS, meanOf, partsOf, totalOf } from "../usage";
import { LimitUse } from "./limit-use";
import { Report } from "./report";
import { UsageByDay } from "./usage-by-day";

/** What became of the GPU time, and whose it was. */
export function UsageReport({ scope, by }: { scope: ReportScope; by: string }) {
  const query = useQuery(usageOptions(scope, by));
  const uses = useQuery(namespacesOptions).data?.namespaces ?? NO_USES;
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
                  `${withUnit(hoursOf(part.hours), "GPU-h")}, ${percent(part.share * 100)}`,
                ]),
              ]}
            />
            <Facts facts={bookedBy(view)} />
            <Meter
              label={t`GPU time: ${parts.map((part) => `${part.name} ${percent(part.share * 100)}`).join(", ")}`}
              parts={parts.map((part) => ({
                share: part.share,
                series: part.series,
                title: part.name,
              }))}
            />
            <ColorKey label={t`legend of GPU time`} parts={parts} />
            <UsageByDay view={view} />
            <Report
              title={t`Usage by ${BY_WORDS[view.by] ?? view.by}`}
              empty={t`No GPUs were held in this time range.`}
              csv={{
                name: "usage",
                columns: [
                  view.by,
                  "GPU-h",
                  t`used GPU-h`,
                  t`idle GPU-h`,
                  t`unknown GPU-h`,
                  t`energy (Wh)`,
                  t`cost (${view.currency})`,
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
                label={t`Usage`}
                columns={usageColumns(view, most, uses)}
                rows={view.lines}
                rowKey={(line) => line.name}
                total={view.lines.length > 1 ? totalOf(view.lines, t`Total`) : undefined}
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
  const hours = (us: number) => withUnit(hoursOf(us / 3600e6), "GPU-h");
  return [
    [t`held by reservations`, hours(reservations_us), t`including the pods that run for them`],
    [t`held by pods`, hours(pods_us), t`placed by Kubernetes itself`],
    [t`held by nobody`, hours(nobody_us), t`free, cordoned or unknown`],
  ];
}

const NO_USES: NamespaceUse[] = [];

function usageColumns(view: UsageView, most: number, uses: NamespaceUse[]): Column<UsageLine>[] {
  const total = Math.max(most, 1e-9);
  return [
    {
      name: capitalize(BY_WORDS[view.by] ?? view.by),
      sortBy: (line) => line.name,
      cell: (line) => line.name,
    },
    {
      name: t`Share`,
      unit: t`used, held and idle, unknown`,
      cell: (line) => (
        <div style={{ minWidth: 160, paddingTop: 7 }}>
          <Meter
            label={t`${number(line.gpu_hours)} GPU-h`}
            parts={[
              {
                share: Math.min(1, line.used_hours / total),
                series: 3,
                title: t`used ${number(line.used_hours)} h`,
              },
              {
                share: Math.min(1, line.idle_hours / total),
                series: 2,
                title: t`held and idle ${number(line.idle_hours)} h`,
              },
              {
                share: Math.min(1, line.unknown_hours / total),
                series: 5,
                title: t`unknown ${number(line.unknown_hours)} h`,
              },
            ]}
          />
        </div>
      ),
    },
    amountColumn(t`Held`, "GPU-h", (line) => line.gpu_hours),
    amountColumn(t`Cost`, view.currency, (line) => line.cost),
    amountColumn(t`Used`, "GPU-h", (line) => line.used_hours),
    amountColumn(t`Idle`, "GPU-h", (line) => line.idle_hours),
    ...(view.by === "namespace"
      ? [
          {
            name: t`GPUs held`,
            unit: t`now, mean, limit`,
            cell: (line: UsageLine) => {
              const use = uses.find(({ namespace }) => namespace === line.name);
              const isTotal = !view.lines.includes(line);
              const now = isTotal
                ? uses.reduce((sum, { gpus }) => sum + gpus, 0)
                : (use?.gpus ?? 0);
              return (
                <LimitUse
                  now={now}
                  mean={meanOf(line, view)}
                  limit={isTotal ? undefined : line.gpu_limit}
                />
              );
            },
          },
        ]
      : []),
    {
      name: t`Energy`,
      unit: "kWh",
      isNumber: true,
      sortBy: (line) => line.energy_wh,
      cell: (line) => hoursOf(line.energy_wh / 1000),
    },
    {
      name: t`Previous period`,
      unit: t`GPU-h held`,
      title: t`held in the preceding period of the same length`,
      isNumber: true,
      cell: (line) => hoursOf(line.previous_gpu_hours),
    },
  ];
}

const capitalize = (word: string) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`;
