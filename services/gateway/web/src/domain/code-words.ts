import { t } from "@lingui/core/macro";

/** States and phases, as people read them. */
const WORDS: Record<string, string> = {
  accepted: t`accepted`,
  cancelled: t`cancelled`,
  completed: t`completed`,
  draining: t`draining`,
  failed: t`failed`,
  loading: t`loading`,
  measuring: t`measuring`,
  paused: t`paused`,
  pending: t`waiting`,
  pulling: t`pulling`,
  running: t`running`,
  starting: t`starting`,
  succeeded: t`succeeded`,
  tearing_down: t`tearing down`,
  waiting: t`waiting`,
  warming_up: t`warming up`,
};

/** The words for a code of the platform; those that are rare are the code's own. */
export function codeWord(code: string): string {
  return WORDS[code] ?? code.replaceAll("_", " ");
}
