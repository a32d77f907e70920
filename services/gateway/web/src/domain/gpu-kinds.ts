import { t } from "@lingui/core/macro";
import type { GpuKind } from "@schemas/messages";

/** How GPUs are handed out, as people call it. */
const KIND_WORDS: Record<GpuKind, string> = {
  pgpu: "pGPU",
  vgpu: t`vGPU (GPU-Manager)`,
  mps: "MPS",
  mig: "MIG",
  time_slice: t`time slices`,
  shared: t`any share of a GPU`,
};

export const KINDS = (Object.keys(KIND_WORDS) as GpuKind[]).map((value) => ({
  value,
  label: KIND_WORDS[value],
}));

export function kindOf(text: string): GpuKind | null {
  return text in KIND_WORDS ? (text as GpuKind) : null;
}

/** Of a pod, which an older agent says nothing of. */
export function kindWords(kind: string): string {
  const gpuKind = kindOf(kind);
  return gpuKind ? KIND_WORDS[gpuKind].replace(/ \(.*/, "").replaceAll(" ", "\u00a0") : "–";
}
