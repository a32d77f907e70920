import { t } from "@lingui/core/macro";
import type { GpuView } from "@schemas/messages";
import { holderOf } from "@/domain/holder";
import { groupBy } from "@/lib/group-by";

/** A part of one GPU, to scale: a holder's share, a MIG instance, or what is left. */
export interface Slice {
  key: string;
  share: number;
  kind: "held" | "free" | "uncut";
  /** "2g.20gb ann": what it is and who has it. */
  word: string;
  reservationId: string | null;
}

export interface GpuSlices {
  gpu: GpuView;
  slices: Slice[];
}

/** One entry for each GPU as it is built; MIG instances lie within theirs. */
export function slicesOf(gpus: GpuView[]): GpuSlices[] {
  const instances = groupBy(
    gpus.filter((gpu) => gpu.parent_uuid !== null),
    (gpu) => gpu.parent_uuid as string,
  );
  const whole = gpus.filter((gpu) => gpu.parent_uuid === null);
  const uuids = new Set(whole.map((gpu) => gpu.uuid));
  // A source that does not tell the GPU around its instances: the first stands for it.
  const orphaned = [...instances].flatMap(([parent, slicesOfParent]) =>
    uuids.has(parent) || !slicesOfParent[0] ? [] : [slicesOfParent[0]],
  );
  return [...whole, ...orphaned].map((gpu) => {
    const migInstances = instances.get(gpu.parent_uuid ?? gpu.uuid);
    return { gpu, slices: migInstances ? migSlices(migInstances) : sharedSlices(gpu, 1, "") };
  });
}

const COMPUTE_SLICES = 7;

function migSlices(instances: GpuView[]): Slice[] {
  const cut = instances
    .toSorted((a, b) => a.index - b.index)
    .flatMap((gpu) =>
      sharedSlices(gpu, computeShare(gpu.mig_profile), `${gpu.mig_profile ?? "MIG"} `),
    );
  return withRest(cut, 1, {
    key: "uncut",
    kind: "uncut",
    word: t`unpartitioned`,
    reservationId: null,
  });
}

/** Of "2g.20gb" 2 of 7. */
function computeShare(profile: string | null): number {
  const match = /^(\d+)g/.exec(profile ?? "");
  return match ? Number(match[1]) / COMPUTE_SLICES : 1 / COMPUTE_SLICES;
}

function sharedSlices(gpu: GpuView, size: number, prefix: string): Slice[] {
  const holders =
    gpu.holders.length > 0 || gpu.state !== "held"
      ? gpu.holders
      : [{ reservation_id: gpu.reservation_id ?? "", shares: 1, holder: gpu.holder }];
  const heldSlices = holders.map((holder, index): Slice => ({
    key: `${gpu.uuid} ${index}`,
    share: Math.min(1, holder.shares) * size,
    kind: "held",
    word: `${prefix}${holderOf(holder.holder ?? "").name || "held"}`,
    reservationId: holder.reservation_id,
  }));
  const rest = gpu.state === "held" ? "free" : (gpu.state ?? "unknown");
  return withRest(heldSlices, size, {
    key: gpu.uuid,
    kind: "free",
    word: prefix + rest,
    reservationId: null,
  });
}

function withRest(slices: Slice[], size: number, rest: Omit<Slice, "share">): Slice[] {
  const freeShare = size - slices.reduce((sum, slice) => sum + slice.share, 0);
  return freeShare > 0.001 ? [...slices, { ...rest, share: freeShare }] : slices;
}
