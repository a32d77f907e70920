import { shellWord, valueText } from "./parameters";
import { LAUNCHES, type EngineLaunch } from "./rules.generated";

interface ServedEngine {
  engine: string;
  model: string;
  parameters?: Record<string, unknown>;
  env?: Record<string, string>;
}

/** What one would type to serve this configuration; null of an engine that people cannot start. */
export function serveCommand({
  engine,
  model,
  parameters = {},
  env = {},
}: ServedEngine): string | null {
  const launch = LAUNCHES[engine];
  if (!launch) return null;
  const options = Object.entries(parameters).flatMap(([name, value]) =>
    optionWords(
      launch,
      launch.hasUnderscores ? name.replaceAll("-", "_") : name.replaceAll("_", "-"),
      value,
    ),
  );
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  return [...variables, ...launch.program, ...modelWords(launch, model), ...options]
    .map(shellWord)
    .join(" ");
}

function modelWords({ modelFlag, hubFlag }: EngineLaunch, model: string): string[] {
  const isOfHub = hubFlag !== null && model.includes("/") && !model.startsWith("/");
  const flag = isOfHub ? hubFlag : modelFlag;
  return flag === null ? [model] : [flag, model];
}

function optionWords(launch: EngineLaunch, name: string, value: unknown): string[] {
  if (value === null || value === undefined) return [];
  if (typeof value === "boolean") return switchWords(launch, name, value);
  if (Array.isArray(value)) return value.length > 0 ? [`--${name}`, ...value.map(valueText)] : [];
  const text = valueText(value);
  // In one word with its flag, so that a value which looks like a flag stays a value.
  return text.startsWith("-") ? [`--${name}=${text}`] : [`--${name}`, text];
}

function switchWords(launch: EngineLaunch, name: string, isOn: boolean): string[] {
  if (isOn) return [`--${name}`];
  if (!launch.hasNegativeSwitches || launch.plainSwitches.includes(name)) return [];
  return [name.startsWith("no-") ? `--${name.slice(3)}` : `--no-${name}`];
}
