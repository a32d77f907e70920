import { useSyncExternalStore } from "react";
import * as endpoints from "@schemas/endpoints";
import type { AttemptProgressed, GpuMetrics, GpuView } from "@schemas/messages";
import { setLiveStatus } from "./events";
import { receiveProgress } from "./progress";
import { openLiveSocket } from "./socket";

/** A GPU's newest reading and when it was taken, by this browser's own clock. */
export interface LiveReading {
  gpu: GpuView;
  takenAt: number;
}

const readings = new Map<string, LiveReading>();
const watchers = new Map<string, Set<() => void>>();
const changed = new Set<string>();
let frame: number | undefined;

export function gpuKey(gpu: { node_id: string; uuid: string }): string {
  return `${gpu.node_id}/${gpu.uuid}`;
}

/** Everything that came since the last frame is drawn with one. */
function tellAll(): void {
  frame = undefined;
  for (const key of changed) for (const tell of watchers.get(key) ?? []) tell();
  changed.clear();
}

export function receiveMetrics(metrics: GpuMetrics, nowMs: number): void {
  for (const gpu of metrics.gpus) {
    const key = gpuKey(gpu);
    readings.set(key, { gpu, takenAt: nowMs - metrics.age_seconds * 1000 });
    changed.add(key);
  }
  frame ??= requestAnimationFrame(tellAll);
}

export function useLiveReading(key: string): LiveReading | undefined {
  return useSyncExternalStore(
    (tell) => {
      const of = watchers.get(key) ?? new Set();
      watchers.set(key, of.add(tell));
      return () => of.delete(tell);
    },
    () => readings.get(key),
  );
}

/** For what draws at a pace of its own, such as sums of a whole fleet. */
export function newestReading(key: string): LiveReading | undefined {
  return readings.get(key);
}

export function followReadings(): () => void {
  const socket = openLiveSocket<GpuMetrics | AttemptProgressed>({
    path: endpoints.watchMetrics.path,
    query: () => ({}),
    onMessage(message) {
      setLiveStatus({ heardAt: Date.now() });
      if (message.type === "gateway.gpu_metrics") receiveMetrics(message, Date.now());
      else receiveProgress(message);
    },
    onConnection: () => undefined,
  });
  return () => socket.close();
}
