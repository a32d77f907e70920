import { t } from "@lingui/core/macro";
import {
  type ExperimentDetail,
  type ExperimentState,
  FINISHED_TASK_STATES,
  type Objective,
  type TaskView,
} from "@schemas/messages";
import { excessOf } from "@/domain/constraints";
import { groupBy } from "@/lib/group-by";
import { boundaryText, LOAD_UNITS } from "@/domain/levels";
import { roughly } from "@/lib/time";
import { number, withUnit } from "@/lib/units";

const OBJECTIVES: Record<Objective, { word: string; unit: string; isSmallerBetter: boolean }> = {
  maximize_goodput: { word: t`max goodput per GPU`, unit: "req/s", isSmallerBetter: false },
  maximize_throughput: {
    word: t`max total throughput per GPU`,
    unit: "tok/s",
    isSmallerBetter: false,
  },
  maximize_tokens_per_joule: { word: t`tokens per joule`, unit: "tok/J", isSmallerBetter: false },
  minimize_cost: { word: t`cost of a million output tokens`, unit: "", isSmallerBetter: true },
  minimize_latency: { word: t`mean e2e latency`, unit: "s", isSmallerBetter: true },
  minimize_ttft: { word: t`mean ttft`, unit: "s", isSmallerBetter: true },
  maximize_load: { word: t`max load`, unit: "requests", isSmallerBetter: false },
  minimize_tpot: { word: t`mean tpot`, unit: "s", isSmallerBetter: true },
};

/** Of the scores of these experiments, which may bear the SLO's penalty. */
export function objectiveOf(objective: Objective, experiments: ExperimentDetail[]) {
  const boundary =
    objective === "maximize_load"
      ? experiments.find((experiment) => experiment.metrics?.boundary)?.metrics?.boundary
      : null;
  const scale = {
    ...OBJECTIVES[objective],
    ...(boundary ? { unit: LOAD_UNITS[boundary.load] } : {}),
  };
  const isPenalized = experiments.some((experiment) => experiment.slo?.penalty);
  return isPenalized ? { ...scale, word: t`${scale.word} with the SLO's penalty` } : scale;
}

export function scoreText(objective: Objective, experiment: ExperimentDetail): string {
  const boundary = objective === "maximize_load" ? experiment.metrics?.boundary : null;
  return boundary
    ? boundaryText(boundary)
    : withUnit(number(experiment.objective_score), objectiveOf(objective, [experiment]).unit);
}

export interface Sums {
  done: number;
  running: number;
  waiting: number;
  failed: number;
  /** Of a search that goes on, as many as it may try. */
  total: number;
  isAtMost: boolean;
}

export function taskSums(task: TaskView): Sums {
  const of = (...states: ExperimentState[]) =>
    states.reduce((sum, state) => sum + (task.experiments_by_state[state] ?? 0), 0);
  const total = Math.max(
    task.experiments_total,
    FINISHED_TASK_STATES.includes(task.state) ? 0 : task.experiments_at_most,
  );
  return {
    done: of("succeeded"),
    running: of("running", "starting"),
    waiting: of("waiting", "pending"),
    failed: of("failed", "cancelled"),
    total,
    isAtMost: total > task.experiments_total,
  };
}

/** How much of what it may try has ended. */
export const endedPercent = ({ done, failed, total }: Sums) =>
  (100 * (done + failed)) / Math.max(1, total);

/** "of 24", or of a search "of at most 50". */
export const ofTotal = ({ total, isAtMost }: Sums) => t`of ${isAtMost ? t`at most ` : ""}${total}`;

/** "4 × Simulated H200": how many each experiment has, and of which model. */
export function gpusText(experiments: ExperimentDetail[]): string | null {
  const infos = experiments.flatMap((experiment) => experiment.gpu_info ?? []);
  const models = [...groupBy(infos, (info) => info.model)].sort(([a], [b]) => a.localeCompare(b));
  if (models.length > 0)
    return models
      .map(
        ([model, infosOfModel]) =>
          `${alternatives(infosOfModel.map((info) => info.count))} × ${model}`,
      )
      .join("; ");
  return experiments.length > 0
    ? t`${alternatives(experiments.map((experiment) => experiment.request.gpus ?? 1))} asked for`
    : null;
}

/** "1, 2 or 4" */
function alternatives(counts: number[]): string {
  const sorted = [...new Set(counts)].sort((a, b) => a - b);
  return [sorted.slice(0, -1).join(", "), sorted.at(-1)].filter(Boolean).join(" or ");
}

/** The ordinal of its first run: what is measured again is no other configuration. */
export const configurationOf = ({ ordinal, run }: ExperimentDetail) => run.repeats ?? ordinal;

/**
 * One run of each configuration: in the order of the task's verdict where it has one; else the best, then what keeps all
 * constraints, then by how far they are missed. One that has no score, or failed at a load that others served, has no rank.
 */
export function rankExperiments(
  task: TaskView,
  experiments: ExperimentDetail[],
): ExperimentDetail[] {
  const order = task.trust?.order ?? [];
  if (order.length > 0) {
    const places = new Map(order.map((standing, place) => [standing.ordinal, place]));
    return experiments
      .filter((experiment) => places.has(experiment.ordinal))
      .toSorted((a, b) => (places.get(a.ordinal) ?? 0) - (places.get(b.ordinal) ?? 0));
  }
  const sign = OBJECTIVES[task.objective].isSmallerBetter ? 1 : -1;
  const isBest = (experiment: ExperimentDetail) =>
    experiment.experiment_id === task.best_experiment_id;
  const best = experiments.find(isBest);
  const rivals = experiments.filter(
    (experiment) =>
      isBest(experiment) ||
      (experiment.run.role === "search" &&
        (!best || configurationOf(experiment) !== configurationOf(best))),
  );
  const fewest = Math.min(...rivals.map(failedLevels));
  return rivals
    .filter(
      (experiment) => experiment.objective_score !== null && failedLevels(experiment) === fewest,
    )
    .filter((experiment) => !best || otherSetting(best, experiment) === null)
    .toSorted((a, b) => {
      if (isBest(a)) return -1;
      if (isBest(b)) return 1;
      const [excess, other] = [excessOf(a), excessOf(b)];
      if (excess !== other) return excess - other;
      return sign * ((a.objective_score ?? 0) - (b.objective_score ?? 0));
    });
}

/** Why its score says nothing against the best's: "GPU model A100"; null where both ran on the same, as far as is known. */
export function otherSetting(best: ExperimentDetail, experiment: ExperimentDetail): string | null {
  const isLimitVaried = Object.keys(best.parameters).some((name) => name.endsWith("power_limit_w"));
  const aspects = ({ run }: ExperimentDetail): [string, string][] => [
    [t`GPU model`, run.setting.gpu_models.join(", ")],
    [t`GPU memory in MB`, run.setting.memory_total_mb.join(", ")],
    [t`MIG profile`, run.setting.mig_profiles.join(", ")],
    [t`power limit in W`, isLimitVaried ? "" : run.setting.power_limits_w.join(", ")],
    ["driver", run.setting.driver_versions.join(", ")],
    ["image", run.image_digest.slice(0, 19)],
  ];
  const usual = new Map(aspects(best));
  const others = aspects(experiment).filter(
    ([name, value]) => value && usual.get(name) && value !== usual.get(name),
  );
  return others.length > 0 ? others.map((other) => other.join(" ")).join(", ") : null;
}

/** All that were measured of these configurations, without what was disturbed where there is other; by the first run of each. */
export function runsOf(
  configurations: ExperimentDetail[],
  experiments: ExperimentDetail[],
): Map<number, ExperimentDetail[]> {
  const ordinals = new Set(configurations.map(configurationOf));
  const counts = ({ run }: ExperimentDetail) => run.role === "search" || run.role === "repeat";
  const all = groupBy(
    experiments.filter(
      (experiment) => ordinals.has(configurationOf(experiment)) && counts(experiment),
    ),
    configurationOf,
  );
  const clean = (runs: ExperimentDetail[]) =>
    runs.filter(({ run }) => run.contaminated.length === 0);
  return new Map(
    [...all].map(([first, runs]) => [first, clean(runs).length > 0 ? clean(runs) : runs]),
  );
}

function failedLevels(experiment: ExperimentDetail): number {
  return experiment.metrics?.failed_levels.length ?? Infinity;
}

/** Before another one: by its score, or by what it keeps that the other does not. */
export function leadWords(
  objective: Objective,
  best: ExperimentDetail,
  second: ExperimentDetail,
): string | null {
  const [score, other] = [best.objective_score ?? 0, second.objective_score ?? 0];
  const [lead, behind] = [
    leadPercent(objective, score, other),
    leadPercent(objective, other, score),
  ];
  if (lead === null || behind === null) return null;
  if (lead >= 0) return t`better by ${number(lead)} % than experiment ${second.ordinal}`;
  return t`experiment ${second.ordinal} scores better by ${number(behind)} %, but misses constraints that this one meets`;
}

/** By how much of the second's score the first is better, in percent. */
export function leadPercent(objective: Objective, best: number, second: number): number | null {
  if (second === 0 || best === 0) return null;
  const ratio = OBJECTIVES[objective].isSmallerBetter ? second / best : best / second;
  return (ratio - 1) * 100;
}

/** GPU-hours and money of all attempts, and of a task under way how long it may still take. */
export function spendingFacts({
  spending,
  finished_at,
}: Pick<TaskView, "spending" | "finished_at">): [string, string][] {
  if (!spending) return [];
  const gpuHours = spending.gpu_hours;
  const hours =
    gpuHours >= 0.1
      ? `${gpuHours.toFixed(2)} GPU-hours`
      : t`${(gpuHours * 3600).toFixed(0)} GPU-seconds`;
  const cost = spending.cost === null ? "" : `, ${spending.cost.toFixed(2)} ${spending.currency}`;
  const facts: [string, string][] = [[t`GPUs held`, `${hours}${cost}`]];
  if (finished_at === null)
    facts.push([
      t`time left`,
      spending.seconds_left === null
        ? t`unknown until the first success`
        : t`about ${roughly(spending.seconds_left)}`,
    ]);
  return facts;
}
