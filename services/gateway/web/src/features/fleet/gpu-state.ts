import { t } from "@lingui/core/macro";
import type { GpuView } from "@schemas/messages";
import type { StateKind } from "@/components/state-mark";
import { heldBy } from "@/domain/holder";
import type { LiveReading } from "@/lib/live/readings";

export interface GpuState {
  kind: StateKind;
  word: string;
  title: string;
}

/** What is wrong first, then who has it. */
export function gpuState(gpu: GpuView): GpuState {
  const why = gpu.reasons.map((reason) => reason.message).join("; ");
  if (gpu.health !== "ok") {
    return { kind: "bad", word: gpu.health, title: gpu.health_detail ?? why };
  }
  switch (gpu.state) {
    case "quarantined":
      return { kind: "attention", word: t`quarantined`, title: why };
    case "cordoned":
      return { kind: "attention", word: t`cordoned`, title: gpu.cordon?.reason || why };
    case "unavailable":
      return { kind: "bad", word: t`unavailable`, title: why };
    case "held":
      return { kind: "busy", word: t`held`, title: heldBy(gpu.holder, gpu.holders[0]?.requester) };
    case "free":
      return gpu.reasons.length > 0
        ? { kind: "attention", word: t`free, blocked`, title: why }
        : { kind: "ok", word: t`free`, title: t`available now` };
    case null:
      return {
        kind: "unknown",
        word: t`not in the ledger`,
        title: t`unknown to the scheduler`,
      };
  }
}

const LEDGER_FIELDS = [
  "state",
  "reservation_id",
  "namespace",
  "holder",
  "holders",
  "reasons",
  "cordon",
  "health",
  "health_detail",
  "recent_faults",
  "pci_bus_id",
  "numa_node",
  "mig_enabled",
  "mig_profile",
  "parent_uuid",
  "power_limit_min_w",
  "power_limit_max_w",
  "simulated",
  "memory_total_mb",
] as const satisfies (keyof GpuView)[];

/** A reading over what the ledger says; `listedAt` is when `listed` was answered. */
export function withReading(
  listed: GpuView,
  listedAt: number,
  live: LiveReading | undefined,
): { gpu: GpuView; takenAt: number | null } {
  const readAt = listed.age_seconds === null ? null : listedAt - listed.age_seconds * 1000;
  if (!live || (readAt !== null && live.takenAt < readAt)) return { gpu: listed, takenAt: readAt };
  const ledgerFields = Object.fromEntries(LEDGER_FIELDS.map((name) => [name, listed[name]]));
  return {
    gpu: { ...live.gpu, ...ledgerFields, fresh: listed.fresh || live.takenAt >= listedAt },
    takenAt: live.takenAt,
  };
}

export interface FleetSums {
  total: number;
  free: number;
  held: number;
  outOfService: number;
  powerW: number | null;
}

export function fleetSums(gpus: GpuView[]): FleetSums {
  const states = gpus.map((gpu) => gpuState(gpu).kind);
  const powers = gpus.filter((gpu) => gpu.fresh).flatMap((gpu) => gpu.power_draw_w ?? []);
  return {
    total: gpus.length,
    free: states.filter((kind) => kind === "ok").length,
    held: states.filter((kind) => kind === "busy").length,
    outOfService: states.filter((kind) => kind !== "ok" && kind !== "busy").length,
    powerW: powers.length > 0 ? powers.reduce((sum, watts) => sum + watts, 0) : null,
  };
}
