import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useComputedColorScheme } from "@mantine/core";
import type {
  ExperimentDetail,
  GpuMonitoring,
  GpuStats,
  SeriesMetric,
  Spread,
} from "@schemas/messages";
import { Chart } from "@/components/chart/chart";
import { ChartGrid } from "@/components/chart/chart-grid";
import { chartToken, seriesColors } from "@/components/chart/theme";
import { DataTable, type Column } from "@/components/data-table";
import { Facts } from "@/components/facts";
import { Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { phaseBands, type PhaseSpan } from "@/domain/phases";
import { seriesChart } from "@/components/chart/series-chart";
import { duration } from "@/lib/time";
import { number, percent, UNKNOWN, whole, withUnit } from "@/lib/units";
import { gpuSeriesOptions } from "../api/get-gpu-series";

interface MonitoringProps {
  experiment: ExperimentDetail;
  phases: PhaseSpan[];
}

export function GpuMonitoringBlock({ experiment, phases }: MonitoringProps) {
  const monitoring = experiment.gpu_monitoring;
  const onGpus = phases.filter((span) => span.phase !== "waiting");
  const first = onGpus[0];
  const last = onGpus.at(-1);
  return (
    <section>
      <h2>
        <Trans>GPU monitoring</Trans>
      </h2>
      {monitoring ? (
        <>
          <Summary monitoring={monitoring} />
          <DataTable
            label={t`GPUs while measured`}
            columns={COLUMNS}
            rows={Object.entries(monitoring.gpu_stats)}
            rowKey={([index]) => index}
          />
        </>
      ) : (
        <p className="dim">
          {experiment.state === "succeeded" && experiment.missing.includes("results")
            ? t`The results service is not responding.`
            : experiment.finished_at
              ? t`No summary without a benchmark; the charts show GPU usage.`
              : t`The summary appears when the experiment ends; the charts are live.`}
        </p>
      )}
      {first && last && (
        <ChartGrid>
          {METRICS.map((metric) => (
            <MetricChart
              key={metric.metric}
              {...metric}
              experiment={experiment}
              phases={onGpus}
              startMs={first.startMs}
              endMs={last.endMs}
            />
          ))}
        </ChartGrid>
      )}
    </section>
  );
}

function Summary({ monitoring }: { monitoring: GpuMonitoring }) {
  return (
    <Facts
      facts={[
        [
          t`duration`,
          duration(monitoring.monitoring_duration_seconds),
          `${monitoring.monitoring_duration_seconds} s`,
        ],
        [t`samples`, whole(monitoring.sample_count)],
        [
          t`coverage`,
          monitoring.trusted === false ? (
            <StateMark
              kind="attention"
              word={percent(monitoring.coverage_percent)}
              title={monitoring.untrusted_because}
            />
          ) : (
            percent(monitoring.coverage_percent)
          ),
          t`share of the expected samples that were received`,
        ],
        [
          t`energy`,
          withUnit(number(monitoring.energy_wh), "Wh"),
          t`from the ${monitoring.energy_source ?? "–"}`,
        ],
        [t`output tokens per joule`, number(monitoring.tokens_per_joule)],
        ...(monitoring.untrusted_because
          ? ([[t`not trusted`, monitoring.untrusted_because]] as [string, string][])
          : []),
      ]}
    />
  );
}

type Row = [index: string, stats: GpuStats];

function spread(
  name: string,
  unit: string,
  of: (stats: GpuStats) => Spread,
  scale = 1,
): Column<Row> {
  const formatValue = (value: number | null) => number(value === null ? null : value / scale);
  return {
    name,
    unit: t`${unit}, mean (min–max)`,
    isNumber: true,
    cell: ([, stats]) => {
      const { mean, min, max } = of(stats);
      if (mean === null) return UNKNOWN;
      return (
        <span title={t`mean ${mean}, min ${min ?? UNKNOWN}, max ${max ?? UNKNOWN}`}>
          {formatValue(mean)}{" "}
          <span className="dim">
            ({formatValue(min)}–{formatValue(max)})
          </span>
        </span>
      );
    },
  };
}

const COLUMNS: Column<Row>[] = [
  { name: "GPU", cell: ([index, stats]) => <span title={stats.uuid}>{index}</span> },
  { name: t`Model`, cell: ([, stats]) => <span className="nowrap">{stats.name}</span> },
  spread(t`Utilization`, "%", (stats) => stats.utilization),
  spread(t`Memory`, "%", (stats) => stats.memory_usage_percent),
  spread(t`Memory used`, "GiB", (stats) => stats.memory_used_mb, 1024),
  spread(t`Temperature`, "°C", (stats) => stats.temperature_c),
  spread(t`Power`, "W", (stats) => stats.power_draw_w),
];

interface Metric {
  metric: SeriesMetric;
  title: string;
  unit: string;
  maximum?: number;
}

const METRICS: Metric[] = [
  { metric: "utilization_percent", title: t`GPU utilization`, unit: "%", maximum: 100 },
  { metric: "memory_used_mb", title: t`Memory usage`, unit: "%", maximum: 100 },
  { metric: "temperature_c", title: t`Temperature`, unit: "°C" },
  { metric: "power_draw_w", title: t`Power draw`, unit: "W" },
];

function MetricChart(
  props: Metric & {
    experiment: ExperimentDetail;
    phases: PhaseSpan[];
    startMs: number;
    endMs: number;
  },
) {
  const { metric, title, unit, maximum, experiment, phases, startMs, endMs } = props;
  const isRunning = experiment.finished_at === null;
  const query = useQuery(gpuSeriesOptions({ experiment, metric, startMs, endMs, isRunning }));
  const scheme = useComputedColorScheme("light");
  const chart = useMemo(() => {
    if (!query.data) return null;
    const totals = new Map(
      experiment.gpu_info?.details.map((device) => [device.uuid, device.memory_total_mb]),
    );
    const uuids = new Set(experiment.gpu_info?.device_ids);
    const devices = query.data.devices.filter((series) => uuids.has(series.device_uuid));
    return seriesChart(
      { ...query.data, devices },
      {
        unit,
        maximum,
        colors: seriesColors(),
        name: (device) => t`${device.node_id} GPU ${device.index}`,
        scale:
          metric === "memory_used_mb"
            ? (value, device) => (100 * value) / (totals.get(device.device_uuid) ?? NaN)
            : undefined,
        bandText: chartToken("dim"),
        bands: phaseBands(phases, chartToken),
      },
    );
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [experiment.gpu_info, maximum, metric, phases, query.data, scheme, unit]);
  return (
    <Loaded query={query}>
      {() =>
        chart && (
          <Chart
            title={title}
            option={chart.option}
            table={chart.table}
            group={experiment.experiment_id}
            empty={t`No GPU samples for this time range.`}
          />
        )
      }
    </Loaded>
  );
}
