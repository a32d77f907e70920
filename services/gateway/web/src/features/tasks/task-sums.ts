import type { ExperimentDetail, Objective, TaskState, TaskView } from "@schemas/messages";
import { excessOf } from "@/lib/constraints";
import { groupBy } from "@/lib/group-by";
import { boundaryText, LOAD_UNITS } from "@/lib/levels";
import { roughly } from "@/lib/time";
import { number, withUnit } from "@/lib/units";

const OBJECTIVES: Record<Objective, { word: string; unit: string; isSmallerBetter: boolean }> = {
  maximize_goodput: { word: "max goodput per GPU", unit: "req/s", isSmallerBetter: false },
  maximize_throughput: { word: "max total throughput per GPU", unit: "tok/s", isSmallerBetter: false },
  maximize_tokens_per_joule: { word: "tokens per joule", unit: "tok/J", isSmallerBetter: false },
  minimize_cost: { word: "cost of a million output tokens", unit: "", isSmallerBetter: true },
  minimize_latency: { word: "mean e2e latency", unit: "s", isSmallerBetter: true },
  minimize_ttft: { word: "mean ttft", unit: "s", isSmallerBetter: true },
  maximize_load: { word: "max load", unit: "requests", isSmallerBetter: false },
  minimize_tpot: { word: "mean tpot", unit: "s", isSmallerBetter: true },
};

/** Of the scores of these experiments, which may bear the SLO's penalty. */
export function objectiveOf(objective: Objective, experiments: ExperimentDetail[]) {
  const boundary = objective === "maximize_load" ? experiments.find((each) => each.metrics?.boundary)?.metrics?.boundary : null;
  const found = { ...OBJECTIVES[objective], ...(boundary ? { unit: LOAD_UNITS[boundary.load] } : {}) };
  const isPenalized = experiments.some((each) => each.slo?.penalty);
  return isPenalized ? { ...found, word: `${found.word} with the SLO's penalty` } : found;
}

export function scoreText(objective: Objective, each: ExperimentDetail): string {
  const boundary = objective === "maximize_load" ? each.metrics?.boundary : null;
  return boundary ? boundaryText(boundary) : withUnit(number(each.objective_score), objectiveOf(objective, [each]).unit);
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

const FINISHED = new Set<TaskState>(["completed", "failed", "cancelled"]);

export function taskSums(task: TaskView): Sums {
  const of = (...states: string[]) =>
    states.reduce((sum, state) => sum + (task.experiments_by_state[state] ?? 0), 0);
  const total = Math.max(task.experiments_total, FINISHED.has(task.state) ? 0 : task.experiments_at_most);
  return {
    done: of("succeeded"),
    running: of("running", "starting"),
    waiting: of("waiting", "pending"),
    failed: of("failed", "cancelled"),
    total,
    isAtMost: total > task.experiments_total,
  };
}

/** "of 24", or of a search "of at most 50". */
export const ofTotal = ({ total, isAtMost }: Sums) => `of ${isAtMost ? "at most " : ""}${total}`;

/** "4 × Simulated H200": how many each experiment has, and of which model. */
export function gpusText(experiments: ExperimentDetail[]): string | null {
  const known = experiments.flatMap((each) => each.gpu_info ?? []);
  const models = [...groupBy(known, (info) => info.model)].sort(([a], [b]) => a.localeCompare(b));
  if (models.length > 0) return models.map(([model, its]) => `${alternatives(its.map((info) => info.count))} × ${model}`).join("; ");
  return experiments.length > 0 ? `${alternatives(experiments.map((each) => each.request.gpus ?? 1))} asked for` : null;
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
export function ranked(task: TaskView, experiments: ExperimentDetail[]): ExperimentDetail[] {
  const order = task.trust?.order ?? [];
  if (order.length > 0) {
    const places = new Map(order.map((standing, place) => [standing.ordinal, place]));
    return experiments
      .filter((each) => places.has(each.ordinal))
      .toSorted((a, b) => (places.get(a.ordinal) ?? 0) - (places.get(b.ordinal) ?? 0));
  }
  const sign = OBJECTIVES[task.objective].isSmallerBetter ? 1 : -1;
  const isBest = (each: ExperimentDetail) => each.experiment_id === task.best_experiment_id;
  const best = experiments.find(isBest);
  const rivals = experiments.filter(
    (each) => isBest(each) || (each.run.role === "search" && (!best || configurationOf(each) !== configurationOf(best))),
  );
  const fewest = Math.min(...rivals.map(failedLevels));
  return rivals
    .filter((each) => each.objective_score !== null && failedLevels(each) === fewest)
    .filter((each) => !best || otherSetting(best, each) === null)
    .toSorted((a, b) => {
      if (isBest(a)) return -1;
      if (isBest(b)) return 1;
      const [excess, other] = [excessOf(a), excessOf(b)];
      if (excess !== other) return excess - other;
      return sign * ((a.objective_score ?? 0) - (b.objective_score ?? 0));
    });
}

/** Why its score says nothing against the best's: "GPU model A100"; null where both ran on the same, as far as is known. */
export function otherSetting(best: ExperimentDetail, each: ExperimentDetail): string | null {
  const isLimitVaried = Object.keys(best.parameters).some((name) => name.endsWith("power_limit_w"));
  const aspects = ({ run }: ExperimentDetail): [string, string][] => [
    ["GPU model", run.setting.gpu_models.join(", ")],
    ["GPU memory in MB", run.setting.memory_total_mb.join(", ")],
    ["MIG profile", run.setting.mig_profiles.join(", ")],
    ["power limit in W", isLimitVaried ? "" : run.setting.power_limits_w.join(", ")],
    ["driver", run.setting.driver_versions.join(", ")],
    ["image", run.image_digest.slice(0, 19)],
  ];
  const usual = new Map(aspects(best));
  const others = aspects(each).filter(([name, value]) => value && usual.get(name) && value !== usual.get(name));
  return others.length > 0 ? others.map((other) => other.join(" ")).join(", ") : null;
}

/** All that were measured of these configurations, without what was disturbed where there is other; by the first run of each. */
export function runsOf(configurations: ExperimentDetail[], experiments: ExperimentDetail[]): Map<number, ExperimentDetail[]> {
  const ordinals = new Set(configurations.map(configurationOf));
  const counts = ({ run }: ExperimentDetail) => run.role === "search" || run.role === "repeat";
  const all = groupBy(
    experiments.filter((each) => ordinals.has(configurationOf(each)) && counts(each)),
    configurationOf,
  );
  const clean = (runs: ExperimentDetail[]) => runs.filter(({ run }) => run.contaminated.length === 0);
  return new Map([...all].map(([first, runs]) => [first, clean(runs).length > 0 ? clean(runs) : runs]));
}

function failedLevels(each: ExperimentDetail): number {
  return each.metrics?.failed_levels.length ?? Infinity;
}

/** Before another one: by its score, or by what it keeps that the other does not. */
export function leadWords(objective: Objective, best: ExperimentDetail, second: ExperimentDetail): string | null {
  const [own, other] = [best.objective_score ?? 0, second.objective_score ?? 0];
  const [lead, behind] = [leadPercent(objective, own, other), leadPercent(objective, other, own)];
  if (lead === null || behind === null) return null;
  if (lead >= 0) return `better by ${number(lead)} % than experiment ${second.ordinal}`;
  return `experiment ${second.ordinal} scores better by ${number(behind)} %, but does not keep what this one keeps`;
}

/** By how much of the second's score the first is better, in percent. */
export function leadPercent(objective: Objective, best: number, second: number): number | null {
  if (second === 0 || best === 0) return null;
  const ratio = OBJECTIVES[objective].isSmallerBetter ? second / best : best / second;
  return (ratio - 1) * 100;
}

/** GPU-hours and money of all attempts, and of a task under way how long it may still take. */
export function spendingFacts({ spending, finished_at }: Pick<TaskView, "spending" | "finished_at">): [string, string][] {
  if (!spending) return [];
  const held = spending.gpu_hours;
  const hours = held >= 0.1 ? `${held.toFixed(2)} GPU-hours` : `${(held * 3600).toFixed(0)} GPU-seconds`;
  const cost = spending.cost === null ? "" : `, ${spending.cost.toFixed(2)} ${spending.currency}`;
  const facts: [string, string][] = [["GPUs held", `${hours}${cost}`]];
  if (finished_at === null)
    facts.push(["time left", spending.seconds_left === null ? "unknown until one succeeds" : `about ${roughly(spending.seconds_left)}`]);
  return facts;
}
