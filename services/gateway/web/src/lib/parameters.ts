/** As a command line has it: true is a bare flag. */
export function valueText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}

/** Those that are not the same in all, in the order of the first. */
export function differing(all: Record<string, unknown>[]): string[] {
  const names = new Set(all.flatMap((each) => Object.keys(each)));
  return [...names].filter((name) => new Set(all.map((each) => valueText(each[name]))).size > 1);
}

/** "slots=8 step-seconds=0.01" of the named ones; of all without names. */
export function parametersText(parameters: Record<string, unknown>, names?: string[]): string {
  const kept = names?.length ? names : Object.keys(parameters);
  return kept
    .filter((name) => name in parameters)
    .map((name) => `${name}=${valueText(parameters[name])}`)
    .join(" ");
}

function flags(parameters: Record<string, unknown>): string[] {
  return Object.entries(parameters).flatMap(([name, value]) => {
    if (value === null || value === false) return [];
    return value === true ? [`--${name}`] : [`--${name}`, shellWord(valueText(value))];
  });
}

/** Quoted where a shell would read it otherwise. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** What one would type to serve this configuration; null where the engine is none of these. */
export function serveCommand(spec: {
  engine: string;
  model: string;
  parameters?: Record<string, unknown>;
}): string | null {
  const model = shellWord(spec.model);
  const starts: Record<string, string[]> = {
    vllm: ["vllm", "serve", model],
    sglang: ["python3", "-m", "sglang.launch_server", "--model-path", model],
    llamacpp: ["llama-server", "--model", model],
  };
  const start = starts[spec.engine];
  return start ? [...start, ...flags(spec.parameters ?? {})].join(" ") : null;
}
