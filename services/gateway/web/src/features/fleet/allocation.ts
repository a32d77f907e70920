import { t } from "@lingui/core/macro";
import type { GpuView } from "@schemas/messages";
import { holderOf } from "@/domain/holder";
import { gpuState } from "./gpu-state";
import { slicesOf, type GpuSlices, type Slice } from "./slices";

/** Neighbours that one has, or a part of one GPU; `gpus` is its width. */
export interface Segment {
  key: string;
  kind: Slice["kind"] | "out";
  word: string;
  gpus: number;
  indexes: number[];
  uuid: string;
  reservationId: string | null;
}

/** A node's GPUs in order, those that one holder has beside each other as one bar. */
export function segmentsOf(gpus: GpuView[]): Segment[] {
  const segments: Segment[] = [];
  for (const entry of slicesOf(gpus.toSorted((a, b) => a.index - b.index))) {
    for (const segment of ofGpu(entry)) {
      const last = segments.at(-1);
      if (last && isSame(last, segment)) {
        last.gpus += segment.gpus;
        last.indexes.push(...segment.indexes);
      } else segments.push(segment);
    }
  }
  return segments;
}

/** Whole GPUs alone are merged: of a shared one each part stays to scale. */
function isSame(last: Segment, next: Segment): boolean {
  return (
    Number.isInteger(last.gpus) &&
    next.gpus === 1 &&
    last.kind === next.kind &&
    last.word === next.word &&
    last.reservationId === next.reservationId
  );
}

function ofGpu({ gpu, slices }: GpuSlices): Segment[] {
  const state = gpuState(gpu);
  const isOut = state.kind === "attention" || state.kind === "bad";
  return slices.map((slice): Segment => ({
    key: slice.key,
    kind: isOut && slice.kind === "free" ? "out" : slice.kind,
    word: isOut ? `${slice.kind === "held" ? `${slice.word}, ` : ""}${state.word}` : slice.word,
    gpus: Math.abs(slice.share - 1) < 0.001 ? 1 : slice.share,
    indexes: [gpu.index],
    uuid: gpu.uuid,
    reservationId: slice.reservationId,
  }));
}

export const isFree = (gpus: GpuView[]): boolean =>
  gpus.every((gpu) => gpuState(gpu).kind === "ok" && gpu.holders.length === 0);

/** Who holds what, over all nodes. */
export interface HolderRow {
  key: string;
  /** "pretraining-7b"; of one that may not be named what the gateway says of it. */
  name: string;
  holder: string;
  requester: string;
  namespace: string | null;
  reservationId: string | null;
  gpus: number;
  nodes: number;
}

const NOBODYS = /^[0-]+$/;

/** The most GPUs first; foreign holders that are not named are one row. */
export function holdersOf(gpus: GpuView[]): HolderRow[] {
  const rows = new Map<string, HolderRow & { nodeIds: Set<string> }>();
  for (const gpu of gpus) {
    for (const of of gpu.holders) {
      const isForeign = NOBODYS.test(of.reservation_id);
      const key = isForeign ? "foreign" : of.reservation_id;
      const row = rows.get(key) ?? {
        key,
        name: holderOf(of.holder ?? "").name || t`reservation …${of.reservation_id.slice(-8)}`,
        holder: of.holder ?? "",
        requester: of.requester,
        namespace: of.namespace,
        reservationId: isForeign ? null : of.reservation_id,
        gpus: 0,
        nodes: 0,
        nodeIds: new Set(),
      };
      row.gpus += Math.min(1, of.shares);
      row.nodeIds.add(gpu.node_id);
      row.nodes = row.nodeIds.size;
      rows.set(key, row);
    }
  }
  return [...rows.values()].toSorted((a, b) => b.gpus - a.gpus || a.name.localeCompare(b.name));
}

export const COLOR_BY = ["holder", "team"] as const;
export type ColorBy = (typeof COLOR_BY)[number];

const LAST_SERIES = 8;

/** Whom a colour stands for: the seven with the most GPUs have one each, all others share the last. */
export function colorsBy(gpus: GpuView[], by: ColorBy): Map<string, number> {
  const sums = new Map<string, number>();
  for (const row of holdersOf(gpus)) {
    const key = colorKey(row, by);
    sums.set(key, (sums.get(key) ?? 0) + row.gpus);
  }
  return new Map(
    [...sums]
      .toSorted(([, a], [, b]) => b - a)
      .map(([key], index): [string, number] => [key, Math.min(LAST_SERIES, index + 1)]),
  );
}

export function colorKey(row: Pick<HolderRow, "name" | "namespace">, by: ColorBy): string {
  return by === "team" ? (row.namespace ?? row.name) : row.name;
}

/** Of the first holder of a GPU. */
export function colorKeyOf(gpu: GpuView, by: ColorBy): string | null {
  const [row] = holdersOf([gpu]);
  return row ? colorKey(row, by) : null;
}

/** "0.5 GPUs", "1 GPU", "32 GPUs". */
export function gpuCount(gpus: number): string {
  const rounded = Math.round(gpus * 100) / 100;
  return rounded === 1 ? t`1 GPU` : t`${rounded} GPUs`;
}
