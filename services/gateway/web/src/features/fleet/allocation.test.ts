import { expect, test } from "vitest";
import type { GpuView } from "@schemas/messages";
import { colorsBy, gpuCount, holdersOf, isFree, segmentsOf } from "./allocation";

const holder = (name: string, shares = 1, namespace = "a") => ({
  reservation_id: name,
  shares,
  namespace,
  holder: name,
  requester: "",
});
const gpu = (index: number, holders: ReturnType<typeof holder>[] = [], more = {}): GpuView =>
  ({
    node_id: "gpu-01",
    uuid: `GPU-${index}`,
    index,
    health: "ok",
    reasons: [],
    state: holders.length > 0 ? "held" : "free",
    parent_uuid: null,
    mig_profile: null,
    holder: holders[0]?.holder ?? null,
    holders,
    cordon: null,
    ...more,
  }) as unknown as GpuView;

test("neighbours of one holder are one bar, as those that are free", () => {
  const node = [...[0, 1, 2].map((at) => gpu(at, [holder("ann")])), gpu(3), gpu(4)];

  expect(segmentsOf(node).map(({ word, gpus }) => [word, gpus])).toEqual([
    ["ann", 3],
    ["free", 2],
  ]);
});

test("a shared GPU keeps its parts, one out of service its state", () => {
  const node = [
    gpu(0, [holder("ann", 0.5)]),
    gpu(1, [holder("ann")]),
    gpu(2, [], { state: "cordoned" }),
    gpu(3),
  ];

  expect(segmentsOf(node).map(({ kind, word, gpus }) => [kind, word, gpus])).toEqual([
    ["held", "ann", 0.5],
    ["free", "free", 0.5],
    ["held", "ann", 1],
    ["out", "cordoned", 1],
    ["free", "free", 1],
  ]);
});

test("holders are summed over nodes, those that are not named as one", () => {
  const foreign = {
    ...holder("another namespace"),
    reservation_id: "00000000-0000-0000-0000-000000000000",
    namespace: null as unknown as string,
  };
  const rows = holdersOf([
    gpu(0, [holder("ann")]),
    gpu(1, [foreign]),
    gpu(2, [foreign]),
    gpu(3, [holder("experiment/x/sweep#1", 0.25)]),
  ]);

  expect(rows.map(({ name, gpus, reservationId }) => [name, gpus, reservationId])).toEqual([
    ["another namespace", 2, null],
    ["ann", 1, "ann"],
    ["sweep #1", 0.25, "experiment/x/sweep#1"],
  ]);
});

test("seven holders have a colour each, and the others share the last", () => {
  const gpus = Array.from({ length: 9 }, (_, at) => gpu(at, [holder(`h${at}`)]));

  expect([...colorsBy(gpus, "holder").values()]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 8]);
  expect([...colorsBy(gpus, "team")]).toEqual([["a", 1]]);
});

test("a node is free where nothing of it is held or out of service", () => {
  expect(isFree([gpu(0), gpu(1)])).toBe(true);
  expect(isFree([gpu(0), gpu(1, [], { state: "cordoned" })])).toBe(false);
  expect([1, 0.5, 8].map(gpuCount)).toEqual(["1 GPU", "0.5 GPUs", "8 GPUs"]);
});
