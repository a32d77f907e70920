const OF_EXPERIMENT = /^experiment\/([^/]+)\/(.+)$/;

/** What a person calls a holder, and the experiment that it is, if it is one. */
export function holderOf(holder: string): { name: string; experimentId: string | null } {
  const [, experimentId = null, name = holder] = OF_EXPERIMENT.exec(holder) ?? [];
  return { name, experimentId };
}
