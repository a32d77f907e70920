import { t } from "@lingui/core/macro";

const STORED = "gpusteward-recent";
const MOST = 5;

function recentIds(): string[] {
  try {
    const ids: unknown = JSON.parse(localStorage.getItem(STORED) ?? "[]");
    return Array.isArray(ids) ? ids.map(String) : [];
  } catch {
    return [];
  }
}

/** Remembers what was chosen, in this browser alone. */
export function rememberAction(id: string): void {
  const ids = [id, ...recentIds().filter((other) => other !== id)].slice(0, MOST);
  localStorage.setItem(STORED, JSON.stringify(ids));
}

/** What was chosen last comes first, and is marked. */
export function withRecentFirst<T extends { id: string; description?: string }>(actions: T[]): T[] {
  const byId = new Map(actions.map((action) => [action.id, action]));
  const recent = recentIds().flatMap((id) => byId.get(id) ?? []);
  const others = actions.filter((action) => !recent.includes(action));
  return [
    ...recent.map((action) => ({ ...action, description: t`Recent: ${action.description ?? ""}` })),
    ...others,
  ];
}
