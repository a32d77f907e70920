import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Loader, Select, useComputedColorScheme } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link, useNavigate } from "react-router";
import type { ExperimentDetail, TaskView } from "@schemas/messages";
import { Chart, type ChartPoint } from "@/components/chart/chart";
import { DownloadCharts } from "@/components/chart/download-charts";
import { ChartGrid } from "@/components/chart/chart-grid";
import { Empty } from "@/components/page";
import { brokenBy } from "@/domain/constraints";
import { areWhole, levelName } from "@/domain/levels";
import { differingNames } from "@/domain/parameters";
import { experimentOptions } from "@/lib/api/get-experiment";
import { paths } from "@/lib/paths";
import { useSharedSearch, useUrlState } from "@/lib/url-state";
import { requestsOptions } from "../api/get-requests";
import { MOST_PICKED, usePicked } from "../picked";
import { rankExperiments, runsOf } from "../task-sums";
import { historyChart } from "./history-chart";
import { cdfChart, latencyChart, LATENCY_WORDS, type Compared } from "./charts";
import { parallelChart } from "./parallel-chart";
import { DiffTable } from "./diff-table";
import { Legend } from "./legend";
import { marksOf } from "./marks";
import { importanceChart, sliceChart } from "./parameter-charts";
import { boundaryChart } from "./boundary-chart";
import { paretoChart } from "./pareto-chart";
import type { LatencyName, Statistic } from "./points";

interface CompareProps {
  task: TaskView;
  experiments: ExperimentDetail[];
}

/** As many as charts stay readable with; beyond them the best. */
const MOST_COMPARED = 60;
const LOADED = t`Loading the levels.`;
const AWAITED = t`The results service is not responding.`;

export default function Compare({ task, experiments }: CompareProps) {
  const suggested = useMemo(() => suggestedOf(task, experiments), [experiments, task]);
  const { picked, isSuggested, toggle, clear, reset } = usePicked(suggested);
  const { compared, isPending } = useCompared(task, experiments, picked);
  if (compared.experiments.length === 0) {
    return (
      <Empty title={t`No measurements yet`}>
        <Trans>Charts appear with the first successful experiment.</Trans>
      </Empty>
    );
  }
  const isAwaited = compared.experiments.some((experiment) =>
    experiment.missing.includes("results"),
  );
  return (
    <>
      {isAwaited && (
        <p className="dim">
          <Trans>{AWAITED} Retrying.</Trans>
        </p>
      )}
      <Legend compared={compared} toggle={toggle}>
        {isSuggested ? (
          <span className="dim">
            {suggested.length > 2
              ? t`Chosen: best, runner-up and baseline. Press an experiment to change it.`
              : t`Press an experiment to compare it.`}
          </span>
        ) : (
          <Button size="compact-xs" variant="default" onClick={reset}>
            <Trans>Best, runner-up, baseline</Trans>
          </Button>
        )}
        <DownloadCharts />
        {picked.length > 0 && <WithOtherTasks picked={picked} />}
        {picked.length > 0 && (
          <Button size="compact-xs" variant="default" onClick={clear}>
            <Trans>Clear selection</Trans>
          </Button>
        )}
      </Legend>
      {picked.length > 1 ? (
        <DiffTable compared={compared} />
      ) : (
        <p className="dim">
          <Trans>Choose 2 to {MOST_PICKED} experiments to see what differs.</Trans>
        </p>
      )}
      {isPending && <Loader size="xs" role="status" aria-label={t`loading the levels`} />}
      <Charts compared={compared} awaited={isPending ? LOADED : isAwaited ? AWAITED : undefined} />
    </>
  );
}

function WithOtherTasks({ picked }: { picked: string[] }) {
  const search = new URLSearchParams(useSharedSearch());
  search.set("experiments", picked.join(","));
  return (
    <Link to={{ pathname: paths.comparison(), search: search.toString() }}>
      <Trans>Compare with other tasks</Trans>
    </Link>
  );
}

/** What most people compare first: the best with the next one and with what the task began with. */
function suggestedOf(task: TaskView, experiments: ExperimentDetail[]): string[] {
  const [best, second] = rankExperiments(task, experiments);
  const baseline = experiments.find(({ ordinal, metrics }) => ordinal === 1 && metrics);
  const chosen = [best, second, baseline].flatMap((experiment) => experiment?.experiment_id ?? []);
  return chosen.length > 1 ? [...new Set(chosen)] : [];
}

function useCompared(task: TaskView, experiments: ExperimentDetail[], picked: string[]) {
  const pickedText = picked.join(",");
  const measured = useMemo(() => {
    const best = rankExperiments(task, experiments).slice(0, MOST_COMPARED);
    const all =
      best.length > 0
        ? best
        : experiments.filter((experiment) => experiment.metrics).slice(0, MOST_COMPARED);
    // A verdict orders what meets the constraints alone; the charts show what misses them too.
    const unranked = experiments
      .filter(
        (experiment) =>
          experiment.metrics &&
          experiment.run.role === "search" &&
          brokenBy(experiment).length > 0 &&
          !all.includes(experiment),
      )
      .slice(0, MOST_COMPARED - all.length);
    const shown = [...all, ...unranked];
    return [
      ...shown,
      ...experiments.filter(
        (experiment) =>
          pickedText.includes(experiment.experiment_id) && !shown.includes(experiment),
      ),
    ];
  }, [experiments, pickedText, task]);
  const { details, isPending } = useQueries({
    queries: measured.map((experiment) => ({
      ...experimentOptions(experiment.experiment_id),
      staleTime: Infinity,
    })),
    combine: (all) => ({
      details: all.flatMap((result) => result.data ?? []),
      isPending: all.some((result) => result.isPending),
    }),
  });
  const compared = useMemo(
    (): Compared => ({
      experiments: measured.map(
        (experiment) =>
          details.find((detail) => detail.experiment_id === experiment.experiment_id) ?? experiment,
      ),
      runs: runsOf(measured, experiments),
      names: differingNames(experiments.map((experiment) => experiment.parameters)),
      bestId: task.best_experiment_id,
      picked: pickedText ? pickedText.split(",") : [],
      objective: task.objective,
      slo: task.task?.slo,
      constraints: task.task?.optimization?.constraints ?? "",
      marks: marksOf(measured),
    }),
    [details, experiments, measured, pickedText, task],
  );
  return { compared, isPending };
}

interface ChartsProps {
  compared: Compared;
  /** Why levels may not be there yet. */
  awaited?: string;
}

function Charts({ compared, awaited }: ChartsProps) {
  const navigate = useNavigate();
  const search = useSharedSearch();
  const scheme = useComputedColorScheme("light");
  const [name, setName] = useUrlState("latency", "e2e_latency");
  const [statistic, setStatistic] = useUrlState("statistic", "mean");
  const scenarios = [
    ...new Set(
      compared.experiments.flatMap(
        (experiment) => experiment.benchmark?.levels.map((level) => level.scenario) ?? [],
      ),
    ),
  ];
  const [scenario, setScenario] = useUrlState("scenario", scenarios[0] ?? "");
  const [sliced, setSliced] = useUrlState("slice", compared.names[0] ?? "");
  const charts = useMemo(
    () => ({
      boundary: boundaryChart(compared),
      pareto: paretoChart(compared),
      latency: latencyChart(compared, name as LatencyName, statistic as Statistic, scenario),
      parallel: parallelChart(compared),
      history: historyChart(compared),
      importance: importanceChart(compared),
      slice: sliceChart(compared, sliced),
    }),
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [compared, name, scenario, scheme, sliced, statistic],
  );
  const isWhole = areWhole(compared.experiments);
  const open = ({ data }: ChartPoint) => {
    const { experimentId } = data as { experimentId?: string };
    if (experimentId) void navigate({ pathname: paths.experiment(experimentId), search });
  };
  return (
    <ChartGrid>
      {!isWhole && (
        <Chart
          title={t`Throughput per GPU vs. speed per user`}
          {...charts.pareto}
          heightPx={320}
          empty={awaited ?? t`No completed levels yet.`}
          onSelect={open}
        />
      )}
      <Chart
        title={t`Latency vs. load`}
        {...charts.latency}
        terms={[name.split("_")[0] ?? name]}
        choices={
          <>
            <Select
              size="xs"
              w={120}
              aria-label={t`Latency`}
              data={Object.entries(LATENCY_WORDS)
                .filter(([value]) => !isWhole || value === "e2e_latency")
                .map(([value, label]) => ({ value, label }))}
              value={name}
              allowDeselect={false}
              onChange={(value) => value && setName(value)}
            />
            <Select
              size="xs"
              w={80}
              aria-label={t`Statistic`}
              data={["mean", "p50", "p90", "p95", "p99"]}
              value={statistic}
              allowDeselect={false}
              onChange={(value) => value && setStatistic(value)}
            />
            {scenarios.length > 1 && (
              <Select
                size="xs"
                w={140}
                aria-label={t`Scenario`}
                data={scenarios}
                value={scenario}
                allowDeselect={false}
                onChange={(value) => value && setScenario(value)}
              />
            )}
          </>
        }
        heightPx={320}
        empty={awaited ?? t`No completed levels of this scenario yet.`}
        onSelect={open}
      />
      {compared.experiments.some((experiment) => experiment.metrics?.boundary) && (
        <div style={{ gridColumn: "1 / -1" }}>
          <Chart
            title={t`Max load within the constraints`}
            {...charts.boundary}
            heightPx={80 + 24 * charts.boundary.table.rows.length}
            empty={t`No load met the constraints.`}
            onSelect={open}
          />
        </div>
      )}
      <div style={{ gridColumn: "1 / -1" }}>
        <Chart
          title={t`Parameters and results`}
          {...charts.parallel}
          heightPx={280}
          empty={t`No measurements yet.`}
          onSelect={open}
        />
      </div>
      <Chart
        title={t`History, best so far`}
        {...charts.history}
        heightPx={280}
        empty={t`No scores yet.`}
        onSelect={open}
      />
      <Chart
        title={t`Importance of parameters`}
        {...charts.importance}
        heightPx={80 + 32 * Math.max(2, compared.names.length)}
        empty={t`Needs at least three scored configurations.`}
      />
      {compared.names.length > 0 && (
        <Chart
          title={t`Slice by one parameter`}
          {...charts.slice}
          choices={
            <Select
              size="xs"
              w={160}
              aria-label={t`Parameter of the slice`}
              data={compared.names}
              value={sliced}
              allowDeselect={false}
              onChange={(value) => value && setSliced(value)}
            />
          }
          heightPx={220}
          empty={t`No scores yet.`}
          onSelect={open}
        />
      )}
      {!isWhole && <Distributions compared={compared} scheme={scheme} />}
    </ChartGrid>
  );
}

/** Of the picked, else of the best three, at their greatest load. */
function Distributions({ compared, scheme }: { compared: Compared; scheme: string }) {
  const { picked, experiments } = compared;
  const chosen = useMemo(
    () =>
      picked.length > 0
        ? experiments.filter((experiment) => picked.includes(experiment.experiment_id))
        : experiments.slice(0, 3),
    [experiments, picked],
  );
  const requests = useQueries({
    queries: chosen.flatMap((experiment) =>
      experiment.benchmark
        ? [requestsOptions(experiment.experiment_id, experiment.benchmark.levels.length - 1)]
        : [],
    ),
    combine: (all) => all.flatMap((result) => result.data ?? []),
  });
  const [ttft, tpot] = useMemo(
    () => [cdfChart(compared, requests, "ttft"), cdfChart(compared, requests, "tpot")] as const,
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [compared, requests, scheme],
  );
  const greatest = chosen.find((experiment) => experiment.benchmark)?.benchmark?.levels.at(-1);
  const load = greatest && requests.length > 0 ? `, ${levelName(greatest)}` : "";
  return (
    <>
      <Chart
        title={t`Distribution of time to first token${load}`}
        {...ttft}
        terms={["ttft"]}
        empty={t`No requests stored.`}
      />
      <Chart
        title={t`Distribution of time per output token (inter-token latency)${load}`}
        {...tpot}
        terms={["tpot"]}
        empty={t`No requests stored.`}
      />
    </>
  );
}
