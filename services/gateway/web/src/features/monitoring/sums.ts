import { t } from "@lingui/core/macro";
import type { NodeSeries, PodSeries, SeriesPoint } from "@schemas/messages";

/** One line of a chart: a node's GPUs together, or a pod on a GPU. */
export interface Line {
  name: string;
  /** Columns of the chart's table that say whose a row is. */
  names: string[];
  totalMb: number | null;
  points: SeriesPoint[];
}

const words = (count: number) => (count === 1 ? t`1 GPU` : t`${count} GPUs`);

export function nodeLines(nodes: NodeSeries[]): Line[] {
  return nodes.map((node) => ({
    name: `${node.node_id}, ${words(node.gpus)}`,
    names: [node.node_id],
    totalMb: node.memory_total_mb,
    points: node.points,
  }));
}

/** A pod's name is enough where nothing else has it; on several GPUs each line says which. */
export function podLines(pods: PodSeries[]): Line[] {
  const count = new Map<string, number>();
  for (const pod of pods) count.set(pod.pod, (count.get(pod.pod) ?? 0) + 1);
  return pods.map((pod) => ({
    name: `${pod.pod}${(count.get(pod.pod) ?? 0) > 1 ? t` on ${pod.node_id} GPU ${pod.index}` : ""}${pod.reading === "gpu" ? t` (whole GPU)` : ""}`,
    names: [pod.namespace, pod.pod, pod.node_id, String(pod.index)],
    totalMb: pod.reading === "own" ? pod.memory_given_mb : null,
    points: pod.points,
  }));
}

/** Mean over the time that is shown, of buckets as long as each other. */
export function meanOf(points: SeriesPoint[]): number | null {
  return points.length === 0
    ? null
    : points.reduce((all, [, , , mean]) => all + mean, 0) / points.length;
}

export function highestOf(points: SeriesPoint[]): number | null {
  return points.length === 0
    ? null
    : points.reduce((most, [, , max]) => Math.max(most, max), -Infinity);
}
