import { groupBy } from "@/lib/group-by";

/** "2 × device seen, request queued": how often each kind is in a record. */
export function recordWords(record: unknown): string {
  if (!Array.isArray(record)) return "";
  const kinds = groupBy(record.flatMap(typeOf), (kind) => kind);
  return [...kinds]
    .map(([kind, its]) => `${its.length > 1 ? `${its.length} × ` : ""}${kind.replaceAll("_", " ")}`)
    .join(", ");
}

function typeOf(each: unknown): string[] {
  const type = (each as { type?: unknown } | null)?.type;
  return typeof type === "string" ? [type] : [];
}
