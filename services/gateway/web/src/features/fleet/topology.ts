import { t } from "@lingui/core/macro";
import type { GpuLink, GpuView, LinkKind } from "@schemas/messages";

/** The words of `nvidia-smi topo -m`. */
const LINK_WORDS: Record<LinkKind, [short: string, meaning: string]> = {
  nvlink: ["NV", "NVLink"],
  internal: ["INT", t`on one board`],
  pix: ["PIX", t`through one PCIe switch`],
  pxb: ["PXB", t`through several PCIe switches`],
  phb: ["PHB", t`through a PCIe host bridge`],
  node: ["NODE", t`within a NUMA node`],
  sys: ["SYS", t`across NUMA nodes`],
};

export interface LinkCell {
  word: string;
  meaning: string;
  isNvlink: boolean;
}

/** By two GPUs, in either order. */
export function linkOf(links: GpuLink[], one: GpuView, other: GpuView): LinkCell | null {
  const link = links.find(
    ({ first_uuid: first, second_uuid: second }) =>
      (first === one.uuid && second === other.uuid) ||
      (first === other.uuid && second === one.uuid),
  );
  if (!link) return null;
  const [short, meaning] = LINK_WORDS[link.kind];
  const isNvlink = link.kind === "nvlink";
  const lanes = isNvlink && link.nvlinks > 0 ? link.nvlinks : "";
  return {
    word: `${short}${lanes}`,
    meaning: lanes ? t`${lanes} direct NVLinks` : meaning,
    isNvlink,
  };
}

/** Which kinds there are, nearest first, with what each means. */
export function kindsIn(links: GpuLink[]): [string, string][] {
  const kinds = new Set(links.map(({ kind }) => kind));
  return Object.entries(LINK_WORDS).flatMap(([kind, words]) =>
    kinds.has(kind as LinkKind) ? [words] : [],
  );
}
