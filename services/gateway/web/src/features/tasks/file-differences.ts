export interface FieldDifference {
  path: string;
  /** null: it has no such field. */
  here: string | null;
  there: string | null;
}

/** By path, in the order of the first file, then what only the other has. Lists are compared whole. */
export function fieldsThatDiffer(here: unknown, there: unknown): FieldDifference[] {
  const [fields, others] = [leavesOf(here), leavesOf(there)];
  return [...new Set([...fields.keys(), ...others.keys()])]
    .map((path) => ({
      path,
      here: fields.get(path) ?? null,
      there: others.get(path) ?? null,
    }))
    .filter((field) => field.here !== field.there);
}

function leavesOf(value: unknown, path = "", leaves = new Map<string, string>()) {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    for (const [name, inner] of Object.entries(value))
      leavesOf(inner, path ? `${path}.${name}` : name, leaves);
  } else if (value !== null && value !== undefined && value !== "") {
    leaves.set(path, typeof value === "string" ? value : JSON.stringify(value));
  }
  return leaves;
}
