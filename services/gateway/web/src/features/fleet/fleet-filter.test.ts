import { expect, test } from "vitest";
import type { GpuView, NodeView } from "@schemas/messages";
import { byNode, filterGpus, heatStep, viewOf } from "./fleet-filter";

const gpu = (fields: Partial<GpuView> = {}): GpuView =>
  ({
    node_id: "n",
    uuid: "GPU-1",
    name: "H200",
    health: "ok",
    state: "free",
    reasons: [],
    holders: [],
    holder: null,
    namespace: null,
    ...fields,
  }) as GpuView;

test("a large fleet is seen as a map unless one asks for tiles", () => {
  expect([viewOf("", 127), viewOf("", 128), viewOf("tiles", 512), viewOf("x", 1)]).toEqual([
    "tiles",
    "map",
    "tiles",
    "tiles",
  ]);
});

test("GPUs are found by state and by words of node, model and holder", () => {
  const free = gpu();
  const heldGpu = gpu({ uuid: "GPU-2", state: "held", holder: "exec/ann" });
  const lost = gpu({ uuid: "GPU-3", health: "lost", state: "held" });

  expect(filterGpus([free, heldGpu, lost], "out of service", "")).toEqual([lost]);
  expect(filterGpus([free, heldGpu, lost], "held", "")).toEqual([heldGpu]);
  expect(filterGpus([free, heldGpu, lost], "", "h200 ANN")).toEqual([heldGpu]);
});

test("a heat map has five steps, and none of what is unknown", () => {
  expect(
    [0, 19, 20, 100].map((value) => heatStep(gpu({ utilization_percent: value }), "utilization")),
  ).toEqual([0, 0, 1, 4]);
  expect(heatStep(gpu({ temperature_c: null }), "temperature")).toBeNull();
  expect(heatStep(gpu({ power_draw_w: 350, power_limit_w: 700 }), "power")).toBe(2);
});

test("GPUs of a node that told nothing of itself are shown as well", () => {
  const node = { node_id: "n" } as NodeView;

  expect(byNode([gpu(), gpu({ node_id: "m" })], [node])).toMatchObject([
    { nodeId: "n", node },
    { nodeId: "m", node: undefined },
  ]);
});
