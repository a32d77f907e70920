import { expect, test } from "vitest";
import type { GpuView } from "@schemas/messages";
import { fleetSums, gpuState, withReading } from "./gpu-state";

const gpu = (fields: Partial<GpuView> = {}): GpuView =>
  ({
    node_id: "n",
    uuid: "GPU-1",
    health: "ok",
    state: "free",
    reasons: [],
    holders: [],
    fresh: true,
    stale: false,
    ...fields,
  }) as GpuView;

test("a fault is told before who holds the GPU", () => {
  expect(gpuState(gpu({ state: "held", health: "lost" })).word).toBe("lost");
  expect(gpuState(gpu({ state: "held" })).kind).toBe("busy");
  expect(gpuState(gpu({ state: null })).kind).toBe("unknown");
});

test("a live reading replaces the listed one and keeps what the ledger says", () => {
  const listed = gpu({
    state: "held",
    holder: "ann",
    age_seconds: 2,
    power_draw_w: 100,
    fresh: false,
  });
  const reading = gpu({ state: null, holder: null, power_draw_w: 300 });

  const newer = withReading(listed, 10_000, { gpu: reading, takenAt: 11_000 });
  const older = withReading(listed, 10_000, { gpu: reading, takenAt: 7_000 });

  expect(newer.gpu).toMatchObject({
    state: "held",
    holder: "ann",
    power_draw_w: 300,
    fresh: true,
    stale: false,
  });
  expect(older).toMatchObject({ gpu: { power_draw_w: 100, fresh: false }, takenAt: 8_000 });
});

test("power that nobody reports is unknown, and stale power is not summed", () => {
  const silent = gpu({ power_draw_w: null });

  expect(fleetSums([silent]).powerW).toBeNull();
  expect(
    fleetSums([silent, gpu({ power_draw_w: 70 }), gpu({ power_draw_w: 500, fresh: false })]).powerW,
  ).toBe(70);
});
