import { useQuery } from "@tanstack/react-query";
import { useMemo, type ReactNode } from "react";
import { Link, useParams } from "react-router";
import type { ExperimentDetail } from "@schemas/messages";
import { Broken } from "@/components/broken";
import { Chips } from "@/components/chips";
import { Facts } from "@/components/facts";
import { Findings } from "@/components/findings";
import { Loaded, Page } from "@/components/page";
import { Progress } from "@/components/progress";
import { SimulatedBadge } from "@/components/simulated-badge";
import { Waterfall } from "@/components/waterfall";
import { brokenBy } from "@/domain/constraints";
import { groupBy } from "@/lib/group-by";
import { experimentOptions } from "@/lib/api/get-experiment";
import { taskOptions } from "@/lib/api/get-task";
import { useLiveProgress } from "@/lib/live/progress";
import { paths } from "@/lib/paths";
import { phaseSpans } from "@/domain/phases";
import { duration, moment, useNow } from "@/lib/time";
import { number, UNKNOWN, whole } from "@/lib/units";
import { useSharedSearch } from "@/lib/url-state";
import { eventsOptions } from "./api/get-events";
import { EngineMetrics } from "./components/engine-metrics";
import { GpuMonitoringBlock } from "./components/gpu-monitoring";
import { Levels } from "./components/levels";
import { Logs } from "./components/logs";
import { PhaseBar } from "./components/phase-bar";
import { FailureBlock, WaitingBlock } from "./components/troubles";

export function ExperimentPage() {
  const { experimentId = "" } = useParams();
  const query = useQuery(experimentOptions(experimentId));
  return (
    <Loaded query={query}>{(experiment) => <ExperimentContent experiment={experiment} />}</Loaded>
  );
}

function ExperimentContent({ experiment }: { experiment: ExperimentDetail }) {
  const search = useSharedSearch();
  const live = useLiveProgress().get(experiment.experiment_id);
  const events = useQuery(eventsOptions(experiment.experiment_id));
  const task = useQuery(taskOptions(experiment.task_id));
  const isRunning = experiment.finished_at === null;
  const now = useNow();
  // A second's grain is enough, and what has ended is not drawn anew.
  const untilMs = isRunning ? now : 0;
  const phases = useMemo(() => phaseSpans(events.data ?? [], untilMs), [events.data, untilMs]);
  const attempt = experiment.attempts.at(-1);
  const file = task.data?.task;
  const searched = [
    ...Object.entries(file?.parameters ?? {}).flatMap(([name, values]) =>
      Array.isArray(values) && values.length < 2 ? [] : [name],
    ),
    ...Object.keys(file?.configurations?.[0] ?? {}),
  ];
  return (
    <Page
      title={`${experiment.task_name} #${experiment.ordinal}`}
      aside={
        <>
          <Progress
            state={experiment.state}
            phase={attempt?.phase}
            live={live}
            title={experiment.reason}
          />
          {experiment.gpu_info?.simulated && <SimulatedBadge />}
          {task.data?.best_experiment_id === experiment.experiment_id && (
            <strong>best of the task</strong>
          )}
        </>
      }
      actions={
        <Link to={{ pathname: paths.task(experiment.task_id), search }}>
          All experiments of the task
        </Link>
      }
    >
      <Chips parameters={experiment.parameters} marked={searched} />
      <Headline experiment={experiment} />
      <PhaseBar phases={phases} />
      {experiment.failure && experiment.state !== "succeeded" && (
        <FailureBlock failure={experiment.failure} memory={experiment.failure_memory} />
      )}
      {experiment.preflight.length > 0 && (
        <section>
          <h2>Preflight</h2>
          <Findings findings={experiment.preflight} />
        </section>
      )}
      {experiment.state === "waiting" && <WaitingBlock experiment={experiment} />}
      {experiment.benchmark && (
        <Levels benchmark={experiment.benchmark} boundary={experiment.metrics?.boundary} />
      )}
      {attempt && <GpuMonitoringBlock experiment={experiment} phases={phases} />}
      {attempt && <EngineMetrics experiment={experiment} phases={phases} />}
      {attempt && (
        <section>
          <h2>GPU time breakdown</h2>
          <Waterfall subjectId={experiment.experiment_id} revision={experiment.revision} />
        </section>
      )}
      {attempt && (
        <Logs
          experimentId={experiment.experiment_id}
          attemptId={attempt.attempt_id}
          isRunning={isRunning}
        />
      )}
    </Page>
  );
}

/** gpu-01 GPU 0; gpu-02 GPUs 1, 3 */
function placesText(details: { node_id: string; index: number }[]): string {
  return [...groupBy(details, (gpu) => gpu.node_id)]
    .map(
      ([node, gpus]) =>
        `${node} GPU${gpus.length > 1 ? "s" : ""} ${gpus.map((gpu) => gpu.index).join(", ")}`,
    )
    .join("; ");
}

function Headline({ experiment }: { experiment: ExperimentDetail }) {
  const { gpu_info: gpus, metrics } = experiment;
  const broken = brokenBy(experiment);
  const now = useNow();
  const started = experiment.started_at ? Date.parse(experiment.started_at) : null;
  const ended = experiment.finished_at ? Date.parse(experiment.finished_at) : now;
  return (
    <Facts
      facts={[
        [
          "GPUs",
          gpus
            ? `${gpus.count} × ${gpus.model} (${placesText(gpus.details)})`
            : `${experiment.request.gpus ?? 1} asked for`,
        ],
        ...(experiment.slo?.constraints.length
          ? ([
              ["constraints", broken.length > 0 ? <Broken constraints={broken} /> : "kept"],
            ] satisfies [string, ReactNode][])
          : []),
        [
          "objective score",
          number(experiment.objective_score),
          String(experiment.objective_score ?? ""),
        ],
        ...(experiment.predicted_score !== null
          ? [["roofline prediction", number(experiment.predicted_score)] as [string, string]]
          : []),
        ["max total throughput per GPU, tok/s", number(metrics?.max_total_throughput_per_gpu)],
        ["p99 e2e latency, ms", number(metrics?.p99_e2e_latency && metrics.p99_e2e_latency * 1000)],
        [
          "requests completed",
          metrics
            ? `${whole(metrics.total_completed_requests)} of ${whole(metrics.total_requests)}`
            : UNKNOWN,
        ],
        ["engine", `${experiment.engine.engine} (${experiment.engine.runtime})`],
        ...(experiment.image_digest
          ? [["image", experiment.image_digest] as [string, string]]
          : []),
        ["started", moment(experiment.started_at)],
        ["duration", duration(started === null ? null : (ended - started) / 1000)],
        ["attempts", whole(experiment.attempts.length)],
      ]}
    />
  );
}
