import { t } from "@lingui/core/macro";
import type { ExperimentDetail, TaskView } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";
import { configurationOf } from "./task-sums";

/** A configuration with all its runs, by ordinal. */
export interface Configuration {
  first: ExperimentDetail;
  runs: ExperimentDetail[];
  /** Runs that count for its score. */
  counted: number;
  /** Of the runs that count; null: none has a score. */
  meanScore: number | null;
  /** Standard deviation as a share of the mean; null: fewer than two runs. */
  spreadPercent: number | null;
  /** Why a run does not count, by its ordinal. */
  setAside: Map<number, string>;
}

const OTHER_ROLES: Partial<Record<ExperimentDetail["run"]["role"], string>> = {
  replay: t`measured with other requests`,
  screen: t`measured with few requests`,
};

/** In the order of their first runs. The verdict of the task goes before what is computed here. */
export function configurationsOf(
  task: Pick<TaskView, "trust">,
  experiments: ExperimentDetail[],
): Configuration[] {
  const verdict = new Map(
    [...(task.trust?.order ?? []), ...(task.trust?.repeated ?? [])].map((standing) => [
      standing.ordinal,
      standing,
    ]),
  );
  const byFirst = groupBy(experiments, configurationOf);
  return [...byFirst].map(([ordinal, all]) => {
    const runs = all.toSorted((a, b) => a.ordinal - b.ordinal);
    const setAside = setAsideOf(task, runs);
    const scores = runs.flatMap((run) =>
      setAside.has(run.ordinal) || run.objective_score === null ? [] : [run.objective_score],
    );
    const standing = verdict.get(ordinal);
    return {
      first: runs.find((run) => run.ordinal === ordinal) ?? (runs[0] as ExperimentDetail),
      runs,
      counted: standing?.runs ?? scores.length,
      meanScore: standing?.mean_score ?? meanOf(scores),
      spreadPercent: standing ? standing.spread_percent : spreadOf(scores),
      setAside,
    };
  });
}

/** A disturbed run counts where no other run of its configuration is there to count in its place. */
function setAsideOf(task: Pick<TaskView, "trust">, runs: ExperimentDetail[]): Map<number, string> {
  const reasons = new Map(task.trust?.set_aside.map(({ ordinal, reason }) => [ordinal, reason]));
  const isDisturbed = (run: ExperimentDetail) => run.run.contaminated.length > 0;
  const hasOther = runs.some((run) => !isDisturbed(run) && run.objective_score !== null);
  return new Map(
    runs.flatMap((run): [number, string][] => {
      const because =
        reasons.get(run.ordinal) ??
        OTHER_ROLES[run.run.role] ??
        (isDisturbed(run) && hasOther ? run.run.contaminated.join("; ") : undefined);
      return because === undefined ? [] : [[run.ordinal, because]];
    }),
  );
}

const meanOf = (scores: number[]) =>
  scores.length === 0 ? null : scores.reduce((sum, score) => sum + score, 0) / scores.length;

function spreadOf(scores: number[]): number | null {
  const mean = meanOf(scores);
  if (mean === null || mean === 0 || scores.length < 2) return null;
  const squares = scores.reduce((sum, score) => sum + (score - mean) ** 2, 0);
  return (Math.sqrt(squares / (scores.length - 1)) / Math.abs(mean)) * 100;
}
