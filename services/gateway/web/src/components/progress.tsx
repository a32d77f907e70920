import { t } from "@lingui/core/macro";
import type { AttemptProgressed, ExperimentState } from "@schemas/messages";
import { percent } from "@/lib/units";
import { Meter } from "./meter";
import { RunState } from "./run-state";

interface ProgressProps {
  state: ExperimentState;
  /** As stored; the live one goes before it. */
  phase?: string | null;
  live?: AttemptProgressed;
  title?: string;
}

/** State, phase and how much of the phase is done. */
export function Progress({ state, phase, live, title }: ProgressProps) {
  const isRunning = state === "running" || state === "starting";
  if (!isRunning) return <RunState state={state} title={title} />;
  const done = live ? live.fraction : null;
  const share = done !== null && done > 0 ? ` ${percent(done * 100)}` : "";
  return (
    <span style={{ display: "inline-block", minWidth: 150 }}>
      <RunState
        state={state}
        phase={live ? `${live.phase}${share}` : phase}
        title={live?.message}
      />
      {live && done !== null && done > 0 && (
        <Meter label={t`${live.phase}, ${percent(done * 100)} done`} parts={[{ share: done }]} />
      )}
    </span>
  );
}
