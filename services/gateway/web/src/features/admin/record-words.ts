import { groupBy } from "@/lib/group-by";

/** "2 × device seen, request queued": how often each kind is in a record. */
export function recordWords(record: unknown): string {
  if (!Array.isArray(record)) return "";
  const kinds = groupBy(record.flatMap(typeOf), (kind) => kind);
  return [...kinds]
    .map(
      ([kind, repeats]) =>
        `${repeats.length > 1 ? `${repeats.length} × ` : ""}${kind.replaceAll("_", " ")}`,
    )
    .join(", ");
}

function typeOf(entry: unknown): string[] {
  const type = (entry as { type?: unknown } | null)?.type;
  return typeof type === "string" ? [type] : [];
}
