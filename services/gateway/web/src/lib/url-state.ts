import { useCallback } from "react";
import { useSearchParams } from "react-router";
import { DEFAULT_RANGE } from "./time-range";

/**
 * A filter, a range or a selection, in the address: a link shows another person the same. The
 * default is not written; changes replace the entry of the history.
 */
export function useUrlState(name: string, fallback: string): [string, (value: string) => void] {
  const [parameters, setParameters] = useSearchParams();
  const set = useCallback(
    (value: string) => {
      setParameters(
        (before) => {
          const after = new URLSearchParams(before);
          if (value === fallback) after.delete(name);
          else after.set(name, value);
          return after;
        },
        { replace: true },
      );
    },
    [fallback, name, setParameters],
  );
  return [parameters.get(name) ?? fallback, set];
}

/** What all pages share: links within the app keep it. */
export const SHARED_PARAMETERS = ["namespace", "range"] as const;

export function useSharedSearch(): string {
  const [parameters] = useSearchParams();
  const shared = new URLSearchParams();
  for (const name of SHARED_PARAMETERS) {
    const value = parameters.get(name);
    if (value !== null) shared.set(name, value);
  }
  const text = shared.toString();
  return text && `?${text}`;
}

export function useNamespace() {
  return useUrlState("namespace", "");
}

export function useTimeRange() {
  return useUrlState("range", DEFAULT_RANGE);
}
