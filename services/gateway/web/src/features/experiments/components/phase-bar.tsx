import { t } from "@lingui/core/macro";
import { codeWord } from "@/domain/code-words";
import { groupBy } from "@/lib/group-by";
import type { PhaseSpan } from "@/domain/phases";
import { PHASE_SERIES } from "@/domain/phases";
import { duration } from "@/lib/time";
import classes from "./phase-bar.module.css";

/** Phases to scale, the sum of each beside its name. */
export function PhaseBar({ phases }: { phases: PhaseSpan[] }) {
  const first = phases[0];
  const last = phases.at(-1);
  if (!first || !last) return null;
  const whole = last.endMs - first.startMs || 1;
  const sums = [...groupBy(phases, (span) => span.phase)].map(
    ([phase, spans]) =>
      [phase, spans.reduce((sum, span) => sum + span.endMs - span.startMs, 0)] as const,
  );
  const color = (phase: string) => `var(--gs-series-${PHASE_SERIES[phase] ?? 8})`;
  return (
    <div className={classes.bar}>
      <div className={classes.track} aria-hidden>
        {phases.map((span, index) => (
          <span
            key={index}
            title={`${codeWord(span.phase)}: ${duration((span.endMs - span.startMs) / 1000)}`}
            style={{
              left: `${((span.startMs - first.startMs) / whole) * 100}%`,
              width: `${((span.endMs - span.startMs) / whole) * 100}%`,
              background: color(span.phase),
            }}
          />
        ))}
      </div>
      <ul className={classes.legend} aria-label={t`time by phase`}>
        {sums.map(([phase, ms]) => (
          <li key={phase}>
            <i style={{ background: color(phase) }} />
            {codeWord(phase)} <strong>{duration(ms / 1000)}</strong>
          </li>
        ))}
      </ul>
    </div>
  );
}
