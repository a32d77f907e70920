export interface Metric {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Of Prometheus' text format those whose names begin with one of `names`. */
export function metricsIn(text: string, names: string[]): Metric[] {
  return text.split("\n").flatMap((line) => {
    if (!names.some((name) => line.startsWith(name))) return [];
    const [, name, labels = "", value] = LINE.exec(line) ?? [];
    if (name === undefined || value === undefined) return [];
    const pairs = [...labels.matchAll(LABEL)].map(([, key = "", text = ""]) => [
      key,
      text.replace(/\\(.)/g, "$1"),
    ]);
    return [
      { name, labels: Object.fromEntries(pairs) as Record<string, string>, value: Number(value) },
    ];
  });
}
