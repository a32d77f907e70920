import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
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
import { StateMark } from "@/components/state-mark";
import { Tabbed } from "@/components/tabbed";
import { Waterfall } from "@/components/waterfall";
import { brokenBy } from "@/domain/constraints";
import { groupBy } from "@/lib/group-by";
import { experimentOptions } from "@/lib/api/get-experiment";
import { taskOptions } from "@/lib/api/get-task";
import { useLiveProgress } from "@/lib/live/progress";
import { paths } from "@/lib/paths";
import { phaseSpans } from "@/domain/phases";
import { duration, moment, useNow } from "@/lib/time";
import { number, UNKNOWN, whole, percent } from "@/lib/units";
import { useSharedSearch, useUrlState } from "@/lib/url-state";
import { eventsOptions } from "./api/get-events";
import { EngineMetrics } from "./components/engine-metrics";
import { GpuMonitoringBlock } from "./components/gpu-monitoring";
import { Levels } from "./components/levels";
import { Logs } from "./components/logs";
import { PhaseBar } from "./components/phase-bar";
import { Repeat } from "./components/repeat";
import { FailureBlock, WaitingBlock } from "./components/troubles";

const RESULT = "result";

export function ExperimentPage() {
  const { experimentId = "" } = useParams();
  const query = useQuery(experimentOptions(experimentId));
  return (
    <Loaded query={query}>{(experiment) => <ExperimentContent experiment={experiment} />}</Loaded>
  );
}

function ExperimentContent({ experiment }: { experiment: ExperimentDetail }) {
  const search = useSharedSearch();
  const [tab, setTab] = useUrlState("tab", RESULT);
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
          {isSimulated(experiment) && <SimulatedBadge />}
          {task.data?.best_experiment_id === experiment.experiment_id && (
            <strong>
              <Trans>best of the task</Trans>
            </strong>
          )}
        </>
      }
      actions={
        <Link to={{ pathname: paths.task(experiment.task_id), search }}>
          <Trans>All experiments of the task</Trans>
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
          <h2>
            <Trans>Preflight</Trans>
          </h2>
          <Findings findings={experiment.preflight} />
        </section>
      )}
      {experiment.state === "waiting" && <WaitingBlock experiment={experiment} />}
      {attempt && (
        <Tabbed
          tabs={[
            {
              value: RESULT,
              word: t`Result`,
              content: experiment.benchmark ? (
                <Levels benchmark={experiment.benchmark} boundary={experiment.metrics?.boundary} />
              ) : (
                <p className="dim">
                  {isRunning ? t`Nothing is measured yet.` : t`Nothing was measured.`}
                </p>
              ),
            },
            {
              value: "gpus",
              word: t`GPUs`,
              content: (
                <>
                  <GpuMonitoringBlock experiment={experiment} phases={phases} />
                  <section>
                    <h2>
                      <Trans>GPU time breakdown</Trans>
                    </h2>
                    <Waterfall
                      subjectId={experiment.experiment_id}
                      revision={experiment.revision}
                    />
                  </section>
                </>
              ),
            },
            {
              value: "engine",
              word: t`Engine`,
              content: <EngineMetrics experiment={experiment} phases={phases} />,
            },
            {
              value: "log",
              word: t`Log`,
              content: (
                <Logs
                  experimentId={experiment.experiment_id}
                  attemptId={attempt.attempt_id}
                  isRunning={isRunning}
                  fileName={`${experiment.task_name}-${experiment.ordinal}.log`}
                />
              ),
            },
            {
              value: "repeat",
              word: t`Repeat it`,
              content: <Repeat experimentId={experiment.experiment_id} />,
            },
          ]}
          chosen={tab}
          onChoose={setTab}
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

/** Of the usual objectives the score is one of the figures beside it. */
function isScoreShown({ objective_score: score, metrics }: ExperimentDetail): boolean {
  const shown = [metrics?.max_total_throughput_per_gpu, metrics?.p99_e2e_latency];
  return score !== null && !shown.includes(score);
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
            : t`${experiment.request.gpus ?? 1} asked for`,
        ],
        ...(experiment.slo?.constraints.length
          ? ([
              [
                t`constraints`,
                broken.length > 0 ? (
                  <Broken constraints={broken} />
                ) : (
                  <StateMark kind="ok" word={t`meets constraints`} />
                ),
              ],
            ] satisfies [string, ReactNode][])
          : []),
        ...(isScoreShown(experiment)
          ? ([
              [
                t`objective score`,
                number(experiment.objective_score),
                String(experiment.objective_score),
              ],
            ] satisfies [string, ReactNode, string][])
          : []),
        ...(experiment.predicted_score !== null
          ? [
              [
                t`predicted by the prior`,
                predictionText(experiment.predicted_score, experiment.objective_score),
              ] as [string, string],
            ]
          : []),
        [t`max total throughput per GPU, tok/s`, number(metrics?.max_total_throughput_per_gpu)],
        [
          t`p99 e2e latency, ms`,
          number(metrics?.p99_e2e_latency && metrics.p99_e2e_latency * 1000),
        ],
        [
          t`requests completed`,
          metrics
            ? t`${whole(metrics.total_completed_requests)} of ${whole(metrics.total_requests)}`
            : UNKNOWN,
        ],
        [t`engine`, `${experiment.engine.engine} (${experiment.engine.runtime})`],
        ...(experiment.run.engine_use
          ? [[t`engine's start`, experiment.run.engine_use] as [string, string]]
          : []),
        ...(experiment.image_digest
          ? [["image", experiment.image_digest] as [string, string]]
          : []),
        ...(experiment.benchmark
          ? ([
              [
                t`benchmark tool`,
                `${experiment.benchmark.tool} ${experiment.benchmark.tool_version}${experiment.benchmark.over_tls ? t`, over TLS` : ""}`,
              ],
            ] satisfies [string, string][])
          : []),
        ...madeWith(experiment),
        [t`started`, moment(experiment.started_at)],
        [t`duration`, duration(started === null ? null : (ended - started) / 1000)],
        [t`attempts`, whole(experiment.attempts.length)],
      ]}
    />
  );
}

/** The host that sent the load, and the engine's own word, as far as they are known. */
const madeWith = ({ benchmark }: ExperimentDetail): [string, string, string?][] => {
  const host = benchmark?.load_host;
  const engine = benchmark?.engine;
  const facts: [string, string | undefined, string?][] = [
    [
      t`engine version`,
      engine?.version,
      Object.entries(engine?.arguments ?? {})
        .map(([name, value]) => `${name}=${value}`)
        .join("\n"),
    ],
    [t`CPU of the load's host`, host?.cpu_model],
    [t`CPU governor`, host?.cpu_governor],
  ];
  return facts.filter((fact): fact is [string, string, string?] => Boolean(fact[1]));
};

/** Whether any part of what it tells was made up: its GPUs, its readings or its engine. */
const isSimulated = ({ gpu_info, gpu_monitoring, benchmark }: ExperimentDetail): boolean =>
  Boolean(gpu_info?.simulated ?? gpu_monitoring?.simulated) || benchmark?.simulated === true;

/** What the prior predicted, and by how much of what was measured that was off. */
function predictionText(predicted: number, measured: number | null): string {
  if (measured === null || measured === 0) return number(predicted);
  const off = percent((100 * Math.abs(predicted - measured)) / Math.abs(measured));
  return t`${number(predicted)}, off by ${off}`;
}
