import { useSyncExternalStore } from "react";
import type { AttemptProgressed } from "@schemas/messages";

const newest = new Map<string, AttemptProgressed>();
const watchers = new Set<() => void>();
let version = 0;

/** Not stored anywhere: what came last, by experiment. */
export function receiveProgress(progress: AttemptProgressed): void {
  newest.set(progress.experiment_id, progress);
  version += 1;
  for (const tell of watchers) tell();
}

export function useLiveProgress(): ReadonlyMap<string, AttemptProgressed> {
  useSyncExternalStore(
    (tell) => {
      watchers.add(tell);
      return () => watchers.delete(tell);
    },
    () => version,
  );
  return newest;
}
