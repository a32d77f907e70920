import { t } from "@lingui/core/macro";
import type { ExperimentDetail } from "@schemas/messages";

/** What its task asked for and it does not keep: constraints, and answers that are the baseline's. */
export function brokenBy({ slo }: Pick<ExperimentDetail, "slo">): string[] {
  const constraints =
    slo?.constraints.filter((check) => check.excess !== 0).map((check) => check.constraint) ?? [];
  return slo?.quality?.excess ? [...constraints, t`agreement with the baseline`] : constraints;
}

/** How far it is from all of that, as a share of the bound it misses most; 0: it keeps all. */
export function excessOf({ slo }: Pick<ExperimentDetail, "slo">): number {
  return Math.max(
    slo?.quality?.excess ?? 0,
    ...(slo?.constraints.map((check) => check.excess ?? Infinity) ?? []),
  );
}
