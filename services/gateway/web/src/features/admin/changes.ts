import { valueText } from "@/domain/parameters";

type State = Record<string, unknown>;

/** "gpu_limit: 4 → 8", of all that is not as it was; of what was made or ended its whole state. */
export function changesOf(before: State | null, after: State | null, within = ""): string[] {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...names].flatMap((name) => {
    const [was, is] = [before?.[name] ?? null, after?.[name] ?? null];
    if (valueText(was) === valueText(is)) return [];
    const path = within + name;
    if (isState(was) && isState(is)) return changesOf(was, is, `${path}.`);
    if (was === null) return [`${path}: ${valueText(is)}`];
    return [`${path}: ${valueText(was)} → ${is === null ? "none" : valueText(is)}`];
  });
}

function isState(value: unknown): value is State {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
