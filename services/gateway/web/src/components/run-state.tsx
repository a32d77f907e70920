import type { ExperimentState, TaskState } from "@schemas/messages";
import { codeWord } from "@/domain/code-words";
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
  // For people it waits, whether its GPUs were asked for already or not.
  const word = [state, phase ?? ""].filter(Boolean).map(codeWord).join(", ");
  return <StateMark kind={KINDS[state]} word={word} title={title} />;
}
