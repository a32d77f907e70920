const OF_EXPERIMENT = /^experiment\/([^/]+)\/(.+)$/;

/** What a person calls a holder, and the experiment that it is, if it is one. */
export function holderOf(holder: string): { name: string; experimentId: string | null } {
  const [, experimentId = null, name = holder] = OF_EXPERIMENT.exec(holder) ?? [];
  return { name, experimentId };
}

/** The same with the person who asked, where it does not name them: `tuning#3 of ada`. */
export function heldBy(holder: string | null | undefined, requester: string | undefined): string {
  const { name } = holderOf(holder ?? "");
  if (!requester || name.includes(requester)) return name;
  return name ? `${name} of ${requester}` : requester;
}
