import { t } from "@lingui/core/macro";
import type { DatasetUse, TraceUse } from "@schemas/messages";
import { percent, whole } from "@/lib/units";

const dropWords = (): Record<string, string> => ({
  empty: t`without a prompt`,
  too_large: t`too large`,
  duplicate: t`duplicates`,
  too_short: t`too short`,
  too_long: t`too long`,
  not_sampled: t`not drawn`,
});

/** Which dataset prompts were of, how much of it was used, and why the rest was not. */
export function datasetText(use: DatasetUse): string {
  const words = dropWords();
  const dropped = Object.entries(use.dropped)
    .map(([reason, count]) => `${whole(count)} ${words[reason] ?? reason}`)
    .join(", ");
  const used = t`Dataset: ${whole(use.used)} of ${whole(use.rows)} rows used`;
  const rest = dropped ? t`, not used: ${dropped}` : "";
  const unit =
    use.length_unit === "words" ? t`lengths in words` : t`lengths in tokens of the engine`;
  return t`${used}${rest}; ${unit}; SHA-256 ${use.sha256}`;
}

/** Which trace requests were of, how much of it may be sent, and what its prompts share. */
export function traceText(use: TraceUse): string {
  const used = t`Trace: up to ${whole(use.used)} of ${whole(use.requests)} requests`;
  const share = t`${percent(use.prefix_share * 100)} of their prompts shared`;
  return t`${used}, ${share}; SHA-256 ${use.sha256}`;
}
