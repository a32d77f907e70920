import { t } from "@lingui/core/macro";
import { useComputedColorScheme } from "@mantine/core";
import { useMemo } from "react";
import type { UsageView } from "@schemas/messages";
import { Chart } from "@/components/chart/chart";
import { seriesColors } from "@/components/chart/theme";
import { withUnit } from "@/lib/units";
import { hoursOf } from "../hours";
import { BY_WORDS, seriesByDay } from "../usage";

const DAY = { day: "numeric", month: "short", timeZone: "UTC" } as const;

/** Who held how much on each day, one on top of the other. */
export function UsageByDay({ view }: { view: UsageView }) {
  const scheme = useComputedColorScheme("light");
  const chart = useMemo(
    () => chartOf(view),
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [scheme, view],
  );
  const by = BY_WORDS[view.by] ?? view.by;
  return (
    <Chart
      title={t`GPU-hours by day and ${by}`}
      option={chart.option}
      table={chart.table}
      heightPx={220}
      empty={t`No GPUs were held in this time range.`}
    />
  );
}

function chartOf(view: UsageView) {
  const colors = seriesColors();
  const series = seriesByDay(view.days, t`others`);
  const days = view.days.map(({ day_at: at }) => new Date(at).toLocaleDateString(undefined, DAY));
  return {
    option: {
      grid: { left: 56, right: 16, top: 36, bottom: 28 },
      xAxis: { type: "category" as const, data: days },
      yAxis: {
        type: "value" as const,
        name: t`GPU-h, days of UTC`,
        nameLocation: "end" as const,
        nameTextStyle: { align: "left" as const },
      },
      series: series.map(({ name, hours }, index) => ({
        type: "bar" as const,
        stack: "held",
        name,
        barMaxWidth: 48,
        color: colors[Math.min(index, colors.length - 1)],
        tooltip: {
          valueFormatter: (value: unknown) => withUnit(hoursOf(Number(value)), "GPU-h"),
        },
        data: hours,
      })),
    },
    table: {
      columns: [t`day`, ...series.map(({ name }) => `${name} (GPU-h)`)],
      rows: days.map((day, index) => [day, ...series.map(({ hours }) => hours[index] ?? 0)]),
    },
  };
}
