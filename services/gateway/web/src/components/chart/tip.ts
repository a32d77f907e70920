const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Lines of a tooltip, which is markup: values that people gave their parameters are text in it. */
export function tip(...lines: string[]): string {
  return lines
    .map((line) => line.replaceAll(/[&<>"]/g, (sign) => ENTITIES[sign] ?? ""))
    .join("<br>");
}
