export type Cell = string | number | null;

/** As RFC 4180 has it; what is unknown is an empty cell. */
export function csvOf(columns: string[], rows: Cell[][]): string {
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value: Cell): string {
  // A leading =, +, - or @ of a text is a formula to spreadsheets.
  const text = typeof value === "string" ? value.replace(/^[=+\-@]/, "'$&") : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Of a text, or of a data URL as it is. */
export function download(name: string, content: string, type?: string): void {
  const url = type ? URL.createObjectURL(new Blob([content], { type })) : content;
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  if (type) setTimeout(() => URL.revokeObjectURL(url), 1000);
}
