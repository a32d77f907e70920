import { t } from "@lingui/core/macro";
const OF_EXPERIMENT = /^experiment\/([^/]+)\/(.+)$/;
const NUMBER = /#(\d+)$/;

/** What a person calls a holder, `tuning #3`, and the experiment that it is, if it is one. */
export function holderOf(holder: string): { name: string; experimentId: string | null } {
  const [, experimentId = null, name = holder] = OF_EXPERIMENT.exec(holder) ?? [];
  return { name: experimentId === null ? name : name.replace(NUMBER, " #$1"), experimentId };
}

/** The same with the person who asked, where it does not name them: `tuning #3 of ada`. */
export function heldBy(holder: string | null | undefined, requester: string | undefined): string {
  const { name } = holderOf(holder ?? "");
  if (!requester || name.includes(requester)) return name;
  return name ? t`${name} of ${requester}` : requester;
}
