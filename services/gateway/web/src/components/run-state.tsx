import type { ExperimentState, TaskState } from "@schemas/messages";
import { StateMark, type StateKind } from "./state-mark";

const KINDS: Record<TaskState | ExperimentState, StateKind> = {
  accepted: "unknown",
  pending: "unknown",
  waiting: "attention",
  paused: "attention",
  starting: "busy",
  running: "busy",
  succeeded: "ok",
  completed: "ok",
  failed: "bad",
  cancelled: "unknown",
};

/** A task's or an experiment's state; `phase` says more of a running one. */
export function RunState(props: {
  state: TaskState | ExperimentState;
  phase?: string | null;
  title?: string;
}) {
  const { state, phase, title } = props;
  const word = phase ? `${state}, ${phase.replaceAll("_", " ")}` : state;
  return <StateMark kind={KINDS[state]} word={word} title={title} />;
}
