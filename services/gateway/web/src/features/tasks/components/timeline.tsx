import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useComputedColorScheme } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useNavigate } from "react-router";
import type { CustomSeriesRenderItem, EChartsOption } from "echarts";
import type { ExperimentDetail, StoredEvent, TaskView } from "@schemas/messages";
import { codeWord } from "@/domain/code-words";
import { Chart } from "@/components/chart/chart";
import { chartToken } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import { Loaded } from "@/components/page";
import { Waterfall } from "@/components/waterfall";
import { paths } from "@/lib/paths";
import { byExperiment, PHASE_SERIES, phaseSpans } from "@/domain/phases";
import { duration, useNow } from "@/lib/time";
import { useSharedSearch } from "@/lib/url-state";
import { eventsOptions } from "../api/get-events";

interface TimelineProps {
  task: TaskView;
  experiments: ExperimentDetail[];
}

export default function Timeline({ task, experiments }: TimelineProps) {
  const events = useQuery(eventsOptions(task.task_id));
  return (
    <Loaded query={events}>
      {(all) => (
        <>
          <TimelineChart task={task} experiments={experiments} events={all} />
          <h2>
            <Trans>GPU time breakdown</Trans>
          </h2>
          <Waterfall subjectId={task.task_id} revision={task.revision} />
        </>
      )}
    </Loaded>
  );
}

const ROW_PX = 24;
/** On the colours of both schemes. */
const ON_BAR = "#14171b";
const DIGIT_PX = 7;

/** Experiments on GPUs over time: a row per GPU, a bar per phase. */
function TimelineChart({ task, experiments, events }: TimelineProps & { events: StoredEvent[] }) {
  const navigate = useNavigate();
  const search = useSharedSearch();
  const now = useNow();
  const untilMs = task.finished_at === null ? Math.floor(now / 5000) * 5000 : 0;
  const scheme = useComputedColorScheme("light");
  const bars = useMemo(() => barsOf(experiments, events, untilMs), [events, experiments, untilMs]);
  const chart = useMemo(
    () => timelineChart(bars),
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [bars, scheme],
  );
  return (
    <Chart
      title={t`Experiments on GPUs`}
      {...chart}
      heightPx={80 + ROW_PX * new Set(bars.map((bar) => bar.row)).size}
      empty={t`No experiment of this task has had a GPU yet.`}
      onSelect={(event) => {
        const bar = bars[event.dataIndex];
        if (bar) void navigate({ pathname: paths.experiment(bar.experimentId), search });
      }}
    />
  );
}

export interface Bar {
  row: string;
  experimentId: string;
  ordinal: number;
  phase: string;
  startMs: number;
  endMs: number;
  isFirst: boolean;
}

export function barsOf(
  experiments: ExperimentDetail[],
  events: StoredEvent[],
  nowMs: number,
): Bar[] {
  const eventsById = byExperiment(events);
  return experiments.flatMap((experiment) => {
    const spans = phaseSpans(eventsById.get(experiment.experiment_id) ?? [], nowMs).filter(
      (span) => span.phase !== "waiting",
    );
    const rows =
      experiment.gpu_info?.details.map((gpu) => t`${gpu.node_id} GPU ${gpu.index}`) ?? [];
    return rows.flatMap((row) =>
      spans.map((span, index) => ({
        row,
        experimentId: experiment.experiment_id,
        ordinal: experiment.ordinal,
        ...span,
        isFirst: index === 0,
      })),
    );
  });
}

function timelineChart(bars: Bar[]) {
  const rows = [...new Set(bars.map((bar) => bar.row))].sort(byNumbers);
  const phases = [...new Set(bars.map((bar) => bar.phase))];
  const ends = new Map<string, number>();
  for (const bar of bars)
    ends.set(bar.experimentId, Math.max(bar.endMs, ends.get(bar.experimentId) ?? 0));
  const color = (phase: string) => chartToken(`series-${PHASE_SERIES[phase] ?? 8}`);
  const draw: CustomSeriesRenderItem = (parameters, at) => {
    const bar = bars[parameters.dataIndex];
    const [left = 0, middle = 0] = at.coord([at.value(0), at.value(2)]);
    const [right = 0] = at.coord([at.value(1), at.value(2)]);
    const [end = 0] = at.coord([ends.get(bar?.experimentId ?? "") ?? 0, 0]);
    const label = `#${bar?.ordinal}`;
    const height = ROW_PX - 8;
    return {
      type: "group",
      children: [
        {
          type: "rect",
          shape: { x: left, y: middle - height / 2, width: Math.max(1, right - left), height },
          style: { fill: color(bar?.phase ?? "") },
        },
        ...(bar?.isFirst && end - left > label.length * DIGIT_PX + 4
          ? [
              {
                type: "text" as const,
                z2: 10,
                style: {
                  text: label,
                  x: left + 3,
                  y: middle,
                  verticalAlign: "middle" as const,
                  fill: ON_BAR,
                  fontSize: 11,
                },
              },
            ]
          : []),
      ],
    };
  };
  const option: EChartsOption = {
    grid: { left: 110, right: 16, top: 28, bottom: 28 },
    tooltip: {
      trigger: "item",
      formatter: (at) => {
        const bar = bars[(at as { dataIndex: number }).dataIndex];
        return bar
          ? tip(
              t`experiment ${bar.ordinal}, ${bar.row}`,
              `${codeWord(bar.phase)}: ${duration((bar.endMs - bar.startMs) / 1000)}`,
            )
          : "";
      },
    },
    xAxis: {
      type: "time",
      min: Math.min(...bars.map((bar) => bar.startMs)),
      max: Math.max(...bars.map((bar) => bar.endMs)),
    },
    yAxis: { type: "category", inverse: true, data: rows },
    series: [
      {
        type: "custom",
        name: "phases",
        renderItem: draw,
        encode: { x: [0, 1], y: 2 },
        clip: true,
        data: bars.map((bar) => [bar.startMs, bar.endMs, rows.indexOf(bar.row)]),
      },
      // Without data of their own: the legend names the colours by them.
      ...phases.map((phase) => ({
        type: "bar" as const,
        name: codeWord(phase),
        color: color(phase),
        data: [],
      })),
    ],
    legend: {
      top: 0,
      right: 0,
      type: "scroll",
      itemHeight: 8,
      selectedMode: false,
      textStyle: { color: chartToken("dim") },
      data: phases.map(codeWord),
    },
  };
  const table = {
    columns: ["GPU", "experiment", "phase", "start", "end"],
    rows: bars.map((bar) => [
      bar.row,
      bar.ordinal,
      bar.phase,
      new Date(bar.startMs).toISOString(),
      new Date(bar.endMs).toISOString(),
    ]),
  };
  return { option, table };
}

function byNumbers(one: string, other: string): number {
  return one.localeCompare(other, "en", { numeric: true });
}
