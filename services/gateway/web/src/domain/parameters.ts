/** As a command line has it: true is a bare flag. */
export function valueText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}

/** Those that are not the same in all, in the order of the first. */
export function differingNames(all: Record<string, unknown>[]): string[] {
  const names = new Set(all.flatMap((parameters) => Object.keys(parameters)));
  return [...names].filter(
    (name) => new Set(all.map((parameters) => valueText(parameters[name]))).size > 1,
  );
}

/** "slots=8 step-seconds=0.01" of the named ones; of all without names. */
export function parametersText(parameters: Record<string, unknown>, names?: string[]): string {
  const shownNames = names?.length ? names : Object.keys(parameters);
  return shownNames
    .filter((name) => name in parameters)
    .map((name) => `${name}=${valueText(parameters[name])}`)
    .join(" ");
}

/** Quoted where a shell would read it otherwise. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
