import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useComputedColorScheme } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { EngineMetric, EngineSeriesView, ExperimentDetail } from "@schemas/messages";
import { Chart } from "@/components/chart/chart";
import { ChartGrid } from "@/components/chart/chart-grid";
import { chartToken, seriesColors } from "@/components/chart/theme";
import { Loaded } from "@/components/page";
import { phaseBands, type PhaseSpan } from "@/domain/phases";
import { seriesChart } from "@/components/chart/series-chart";
import { engineSeriesOptions } from "@/lib/api/get-engine-series";

interface EngineChart {
  title: string;
  unit: string;
  maximum?: number;
  metrics: [metric: EngineMetric, name: string][];
}

const CHARTS: EngineChart[] = [
  {
    title: t`Requests in the engine`,
    unit: "requests",
    metrics: [
      ["running", "running"],
      ["waiting", "waiting"],
    ],
  },
  {
    title: t`Token throughput of the engine`,
    unit: "tok/s",
    metrics: [
      ["prompt_tokens_per_s", "prompt"],
      ["generation_tokens_per_s", "generated"],
    ],
  },
  {
    title: t`KV cache and prefix hits`,
    unit: "%",
    maximum: 100,
    metrics: [
      ["kv_cache_percent", t`KV cache in use`],
      ["prefix_hit_percent", t`prefix hits`],
    ],
  },
  { title: t`Preemptions`, unit: "1/s", metrics: [["preemptions_per_s", "preemptions"]] },
  { title: t`Accepted drafts`, unit: "tokens", metrics: [["accept_length", t`accept length`]] },
];

interface EngineMetricsProps {
  experiment: ExperimentDetail;
  phases: PhaseSpan[];
}

/** What the engine told of itself, in step with the charts of its GPUs. */
export function EngineMetrics({ experiment, phases }: EngineMetricsProps) {
  const query = useQuery(
    engineSeriesOptions(experiment.experiment_id, experiment.finished_at === null),
  );
  const onGpus = useMemo(() => phases.filter((span) => span.phase !== "waiting"), [phases]);
  return (
    <section>
      <h2>
        <Trans>Engine metrics</Trans>
      </h2>
      <Loaded query={query}>
        {(view) => {
          const charts = CHARTS.filter((chart) =>
            chart.metrics.some(([metric]) => view.series[metric]?.length),
          );
          return charts.length === 0 ? (
            <p className="dim">
              {experiment.finished_at
                ? t`The engine reported no metrics: it has none, or did not run long enough.`
                : t`Metrics are read once a second during the measurement.`}
            </p>
          ) : (
            <ChartGrid>
              {charts.map((chart) => (
                <MetricsChart key={chart.title} {...chart} view={view} phases={onGpus} />
              ))}
            </ChartGrid>
          );
        }}
      </Loaded>
    </section>
  );
}

function MetricsChart(props: EngineChart & { view: EngineSeriesView; phases: PhaseSpan[] }) {
  const { title, unit, maximum, metrics, view, phases } = props;
  const scheme = useComputedColorScheme("light");
  const chart = useMemo(() => {
    const names = new Map<string, string>(metrics);
    const devices = metrics.flatMap(([metric], index) => {
      const points = view.series[metric];
      return points?.length
        ? [{ node_id: view.engine ?? "", device_uuid: metric, index, points }]
        : [];
    });
    return seriesChart(
      { devices },
      {
        unit,
        maximum,
        colors: seriesColors(),
        name: (device) => names.get(device.device_uuid) ?? device.device_uuid,
        rowNames: ["engine", "metric"],
        rowOf: (device) => [device.node_id, device.device_uuid],
        bandText: chartToken("dim"),
        bands: phaseBands(phases, chartToken),
      },
    );
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [maximum, metrics, phases, scheme, unit, view]);
  return (
    <Chart
      title={title}
      option={chart.option}
      table={chart.table}
      group={view.experiment_id}
      empty={t`Not reported.`}
    />
  );
}
