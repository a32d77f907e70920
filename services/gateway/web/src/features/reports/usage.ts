import type { GpuTime } from "@schemas/messages";

/** What the lines of the usage report may be by. */
export const BY_WORDS: Record<string, string> = {
  namespace: "namespace",
  person: "person",
  requester: "requester's label",
  model: "model",
  node: "node",
  pod: "pod",
  owner: "owner of pods",
  kind: "GPU type",
};

const HOUR_US = 3600e6;

export interface Part {
  name: string;
  hours: number;
  share: number;
  series: number;
}

/** What became of all GPU time: the parts add up to the GPUs' wall time. */
export function partsOf(total: GpuTime): Part[] {
  const parts: [string, number, number][] = [
    ["used", total.used_us, 3],
    ["held and idle", total.idle_us, 2],
    ["free", total.free_us, 1],
    ["cordoned", total.cordoned_us, 7],
    ["unknown", total.unknown_us, 8],
  ];
  const sum = parts.reduce((all, [, us]) => all + us, 0);
  return parts.map(([name, us, series]) => ({
    name,
    hours: us / HOUR_US,
    share: sum > 0 ? us / sum : 0,
    series,
  }));
}
