import { Button, Loader, Select, useComputedColorScheme } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { useNavigate } from "react-router";
import type { ExperimentDetail, TaskView } from "@schemas/messages";
import { Chart, type ChartPoint } from "@/components/chart/chart";
import { ChartGrid } from "@/components/chart/chart-grid";
import { Empty } from "@/components/page";
import { levelName } from "@/domain/levels";
import { differingNames } from "@/domain/parameters";
import { experimentOptions } from "@/lib/api/get-experiment";
import { paths } from "@/lib/paths";
import { useSharedSearch, useUrlState } from "@/lib/url-state";
import { requestsOptions } from "../api/get-requests";
import { MOST_PICKED, usePicked } from "../picked";
import { rankExperiments, runsOf } from "../task-sums";
import { cdfChart, historyChart, latencyChart, LATENCY_WORDS, type Compared } from "./charts";
import { parallelChart } from "./parallel-chart";
import { DiffTable } from "./diff-table";
import { Legend } from "./legend";
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
const LOADED = "Loading the levels.";
const AWAITED = "The results service is not responding.";

export default function Compare({ task, experiments }: CompareProps) {
  const { picked, clear } = usePicked();
  const { compared, isPending } = useCompared(task, experiments, picked);
  if (compared.experiments.length === 0) {
    return (
      <Empty title="No measurements yet">Charts appear with the first successful experiment.</Empty>
    );
  }
  const isAwaited = compared.experiments.some((experiment) =>
    experiment.missing.includes("results"),
  );
  return (
    <>
      {isAwaited && <p className="dim">{AWAITED} Retrying.</p>}
      <Legend compared={compared} />
      {isPending && <Loader size="xs" role="status" aria-label="loading the levels" />}
      <Charts compared={compared} awaited={isPending ? LOADED : isAwaited ? AWAITED : undefined} />
      <h2>
        {picked.length > 1
          ? `${picked.length} picked experiments`
          : `Pick 2 to ${MOST_PICKED} experiments above to compare them`}{" "}
        {picked.length > 0 && (
          <Button size="compact-xs" variant="default" onClick={clear}>
            Clear selection
          </Button>
        )}
      </h2>
      {picked.length > 1 && <DiffTable compared={compared} />}
    </>
  );
}

function useCompared(task: TaskView, experiments: ExperimentDetail[], picked: string[]) {
  const pickedText = picked.join(",");
  const measured = useMemo(() => {
    const best = rankExperiments(task, experiments).slice(0, MOST_COMPARED);
    const all =
      best.length > 0
        ? best
        : experiments.filter((experiment) => experiment.metrics).slice(0, MOST_COMPARED);
    return [
      ...all,
      ...experiments.filter(
        (experiment) => pickedText.includes(experiment.experiment_id) && !all.includes(experiment),
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
  const open = ({ data }: ChartPoint) => {
    const { experimentId } = data as { experimentId?: string };
    if (experimentId) void navigate({ pathname: paths.experiment(experimentId), search });
  };
  return (
    <ChartGrid>
      <Chart
        title="Throughput per GPU vs. speed per user"
        {...charts.pareto}
        heightPx={320}
        empty={awaited ?? "No completed levels yet."}
        onSelect={open}
      />
      <Chart
        title="Latency vs. load"
        {...charts.latency}
        terms={[name.split("_")[0] ?? name]}
        choices={
          <>
            <Select
              size="xs"
              w={120}
              aria-label="Latency"
              data={Object.entries(LATENCY_WORDS).map(([value, label]) => ({ value, label }))}
              value={name}
              allowDeselect={false}
              onChange={(value) => value && setName(value)}
            />
            <Select
              size="xs"
              w={80}
              aria-label="Statistic"
              data={["mean", "p50", "p90", "p95", "p99"]}
              value={statistic}
              allowDeselect={false}
              onChange={(value) => value && setStatistic(value)}
            />
            {scenarios.length > 1 && (
              <Select
                size="xs"
                w={140}
                aria-label="Scenario"
                data={scenarios}
                value={scenario}
                allowDeselect={false}
                onChange={(value) => value && setScenario(value)}
              />
            )}
          </>
        }
        heightPx={320}
        empty={awaited ?? "No completed levels of this scenario yet."}
        onSelect={open}
      />
      {compared.experiments.some((experiment) => experiment.metrics?.boundary) && (
        <div style={{ gridColumn: "1 / -1" }}>
          <Chart
            title="Max load within the constraints"
            {...charts.boundary}
            heightPx={80 + 24 * charts.boundary.table.rows.length}
            empty="No load met the constraints."
            onSelect={open}
          />
        </div>
      )}
      <div style={{ gridColumn: "1 / -1" }}>
        <Chart
          title="Parameters and results"
          {...charts.parallel}
          heightPx={280}
          empty="No measurements yet."
          onSelect={open}
        />
      </div>
      <Chart
        title="History, best so far"
        {...charts.history}
        heightPx={280}
        empty="No scores yet."
        onSelect={open}
      />
      <Chart
        title="Importance of parameters"
        {...charts.importance}
        heightPx={80 + 32 * Math.max(2, compared.names.length)}
        empty="Needs at least three scored configurations."
      />
      {compared.names.length > 0 && (
        <Chart
          title="Slice by one parameter"
          {...charts.slice}
          choices={
            <Select
              size="xs"
              w={160}
              aria-label="Parameter of the slice"
              data={compared.names}
              value={sliced}
              allowDeselect={false}
              onChange={(value) => value && setSliced(value)}
            />
          }
          heightPx={220}
          empty="No scores yet."
          onSelect={open}
        />
      )}
      <Distributions compared={compared} scheme={scheme} />
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
        title={`Distribution of time to first token${load}`}
        {...ttft}
        terms={["ttft"]}
        empty="No requests stored."
      />
      <Chart
        title={`Distribution of time per output token (inter-token latency)${load}`}
        {...tpot}
        terms={["tpot"]}
        empty="No requests stored."
      />
    </>
  );
}
