import type { LabelChanges } from "@/lib/api/label-node";

type Labels = Record<string, string>;

/** A line for each, in order. */
export function labelText(labels: Labels): string {
  return Object.entries(labels)
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([key, value]) => `${key}=${value}`)
    .join("\n");
}

/** The labels of such lines, and the first line that is none. */
export function labelsIn(text: string): { labels: Labels; wrong: string | null } {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  const wrong = lines.find((line) => !/^[^=\s]+=/.test(line)) ?? null;
  const pairs = lines.map((line): [string, string] => {
    const at = line.indexOf("=");
    return [line.slice(0, at), line.slice(at + 1)];
  });
  return { labels: Object.fromEntries(pairs), wrong };
}

/** What is to be set, null for what goes, and the same back. */
export function changedLabels(
  was: Labels,
  is: Labels,
): { changes: LabelChanges; before: LabelChanges } {
  const keys = [...new Set([...Object.keys(was), ...Object.keys(is)])].filter(
    (key) => was[key] !== is[key],
  );
  const of = (labels: Labels): LabelChanges =>
    Object.fromEntries(keys.map((key) => [key, labels[key] ?? null]));
  return { changes: of(is), before: of(was) };
}
