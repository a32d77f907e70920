import { codeWord } from "@/domain/code-words";
import { t } from "@lingui/core/macro";
import { useComputedColorScheme } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { EChartsOption } from "echarts";
import type { WaterfallView } from "@schemas/messages";
import { waterfallOptions } from "@/lib/api/get-waterfall";
import { PHASE_SERIES } from "@/domain/phases";
import { duration } from "@/lib/time";
import { Chart } from "./chart/chart";
import { seriesColors } from "./chart/theme";
import { tip } from "./chart/tip";
import { Loaded } from "./page";

interface WaterfallProps {
  subjectId: string;
  /** Of what still runs the answer changes with its events. */
  revision: number;
}

/** Where the GPU-seconds of a task or an experiment went. */
export function Waterfall({ subjectId, revision }: WaterfallProps) {
  const query = useQuery(waterfallOptions(subjectId, revision));
  return <Loaded query={query}>{(view) => <Steps view={view} />}</Loaded>;
}

function Steps({ view }: { view: WaterfallView }) {
  const scheme = useComputedColorScheme("light");
  // The colours are read from the page as it is drawn.
  // eslint-disable-next-line react-hooks/exhaustive-deps
  const { option, table } = useMemo(() => stepsChart(view), [scheme, view]);
  return (
    <Chart
      title={t`GPU-seconds by step, attempts: ${view.attempts}`}
      option={option}
      table={table}
      heightPx={240}
      empty={t`No GPU time recorded yet.`}
    />
  );
}

function stepsChart(view: WaterfallView) {
  const shown = view.steps.filter((step) => step.seconds > 0);
  let sum = 0;
  const bars = shown.map((step) => {
    const from = sum;
    sum += step.gpu_seconds;
    return { ...step, from };
  });
  const colors = seriesColors();
  const option: EChartsOption = {
    grid: { left: 110, right: 24, top: 8, bottom: 44 },
    tooltip: {
      trigger: "item",
      formatter: (at) => {
        const step = bars[(at as { dataIndex: number }).dataIndex];
        if (!step) return "";
        return tip(
          codeWord(step.step),
          t`${duration(step.gpu_seconds)} of GPU time`,
          t`${duration(step.seconds)} of wall time`,
        );
      },
    },
    xAxis: { type: "value", name: t`GPU time, summed (s)`, nameLocation: "middle", nameGap: 28 },
    yAxis: { type: "category", inverse: true, data: bars.map((step) => codeWord(step.step)) },
    series: [
      {
        type: "bar",
        stack: "steps",
        silent: true,
        itemStyle: { opacity: 0 },
        tooltip: { show: false },
        data: bars.map((step) => step.from),
      },
      {
        type: "bar",
        stack: "steps",
        barMaxWidth: 18,
        data: bars.map((step) => ({
          value: step.gpu_seconds,
          itemStyle: { color: colors[(PHASE_SERIES[step.step] ?? 8) - 1] },
        })),
      },
    ],
  };
  const rows = view.steps.map((step) => [step.step, step.seconds, step.gpu_seconds, step.cost]);
  return {
    option,
    table: {
      columns: ["step", t`wall time (s)`, t`GPU time (s)`, t`cost (${view.currency})`],
      rows: sum > 0 ? rows : [],
    },
  };
}
