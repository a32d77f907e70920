import { t } from "@lingui/core/macro";
import type { GpuView, NodeView } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";
import { share } from "@/lib/units";
import { gpuState } from "./gpu-state";

export interface NodeGpus {
  nodeId: string;
  node: NodeView | undefined;
  gpus: GpuView[];
}

export function byNode(gpus: GpuView[], nodes: NodeView[]): NodeGpus[] {
  const byId = new Map(nodes.map((node) => [node.node_id, node]));
  return [...groupBy(gpus, (gpu) => gpu.node_id)].map(([nodeId, gpusOfNode]) => ({
    nodeId,
    node: byId.get(nodeId),
    gpus: gpusOfNode,
  }));
}

export const SHOWN = ["free", "held", "out of service"] as const;

export const SHOWN_WORDS: Record<(typeof SHOWN)[number], string> = {
  free: t`free`,
  held: t`held`,
  "out of service": t`out of service`,
};

/** GPUs in a state, whose node, model, holder or namespace has all of the words. */
export function filterGpus(gpus: GpuView[], shown: string, words: string): GpuView[] {
  const terms = words.toLowerCase().split(/\s+/).filter(Boolean);
  return gpus.filter((gpu) => {
    const text = [
      gpu.node_id,
      gpu.name,
      gpu.holder,
      gpu.namespace,
      gpu.uuid,
      ...gpu.holders.flatMap((holder) => [holder.holder, holder.requester]),
    ]
      .join(" ")
      .toLowerCase();
    return (!shown || shownAs(gpu) === shown) && terms.every((word) => text.includes(word));
  });
}

function shownAs(gpu: GpuView): (typeof SHOWN)[number] {
  const { kind } = gpuState(gpu);
  return kind === "ok" ? "free" : kind === "busy" ? "held" : "out of service";
}

/** From here on a tile for each GPU is more than one sees at once. */
const MANY_GPUS = 128;

export const VIEWS = ["tiles", "map", "allocation"] as const;
export type FleetView = (typeof VIEWS)[number];

export function viewOf(chosen: string, gpus: number): FleetView {
  return VIEWS.find((view) => view === chosen) ?? (gpus >= MANY_GPUS ? "map" : "tiles");
}

export const HEAT_METRICS = [
  "utilization",
  "memory",
  "temperature",
  "power",
  "state",
  "holder",
  "team",
] as const;
export type HeatMetric = (typeof HEAT_METRICS)[number];

const COLD_C = 25;
const HOT_C = 90;
export const HEAT_STEPS = 5;

/** Of five steps, from 0; null of what is unknown. */
export function heatStep(gpu: GpuView, metric: HeatMetric): number | null {
  const part = {
    utilization: () => share(gpu.utilization_percent, 100),
    memory: () => share(gpu.memory_used_mb, gpu.memory_total_mb),
    temperature: () =>
      share(gpu.temperature_c === null ? null : gpu.temperature_c - COLD_C, HOT_C - COLD_C),
    power: () => share(gpu.power_draw_w, gpu.power_limit_w),
    state: () => null,
    holder: () => null,
    team: () => null,
  }[metric]();
  return part === null ? null : Math.min(HEAT_STEPS - 1, Math.floor(part * HEAT_STEPS));
}

/** What the steps of the legend go from and to. */
export const HEAT_ENDS: Record<HeatMetric, [string, string] | null> = {
  utilization: ["0", "100\u202f%"],
  memory: ["0", "100\u202f%"],
  temperature: [`${COLD_C}`, `${HOT_C}\u202f°C`],
  power: ["0", t`100 % of the limit`],
  state: null,
  holder: null,
  team: null,
};
