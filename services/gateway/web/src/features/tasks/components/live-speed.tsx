import { t } from "@lingui/core/macro";
import { useQueries } from "@tanstack/react-query";
import type { EngineSeriesView, ExperimentDetail } from "@schemas/messages";
import { engineSeriesOptions } from "@/lib/api/get-engine-series";
import { number, UNKNOWN } from "@/lib/units";
import { secondsSince, useNow } from "@/lib/time";

/** Of more at once the platform would be asked too often. */
const MOST = 8;
/** An older reading says nothing of now: engines are read once a second. */
const FRESH_SECONDS = 15;

/** Generated tokens of a second, by all engines of the task that measure now. */
export function LiveSpeed({ experiments }: { experiments: ExperimentDetail[] }) {
  const now = useNow();
  const running = experiments.filter((experiment) => experiment.state === "running").slice(0, MOST);
  const views = useQueries({
    queries: running.map((experiment) => engineSeriesOptions(experiment.experiment_id, true)),
    combine: (all) => all.flatMap((result) => result.data ?? []),
  });
  const speeds = views.flatMap((view) => speedNow(view, now) ?? []);
  if (speeds.length === 0) return UNKNOWN;
  return t`${number(speeds.reduce((sum, speed) => sum + speed, 0))} tok/s`;
}

export function speedNow(view: EngineSeriesView, nowMs: number): number | null {
  const newest = view.series["generation_tokens_per_s"]?.at(-1);
  if (newest === undefined) return null;
  const [at, , , mean] = newest;
  return (secondsSince(at, nowMs) ?? Infinity) < FRESH_SECONDS + view.bucket_seconds ? mean : null;
}
