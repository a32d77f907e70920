import { expect, test } from "vitest";
import type { NodeSeries, PodSeries } from "@schemas/messages";
import { highestOf, meanOf, nodeLines, podLines } from "./sums";

const AT = "2026-01-01T00:00:00Z";
const POINTS = [
  [AT, 1, 4, 2],
  [AT, 2, 9, 4],
] as unknown as NodeSeries["points"];

function pod(name: string, index: number, reading: PodSeries["reading"] = "own"): PodSeries {
  return {
    namespace: "serving",
    pod: name,
    owner: "Deployment/llama",
    node_id: "gpu-01",
    device_uuid: `GPU-${index}`,
    index,
    kind: "mps",
    percent: 25,
    memory_given_mb: 2048,
    reading,
    points: POINTS,
  };
}

test("a pod's line says on which GPU it is where it has several, and whose the reading is", () => {
  const names = podLines([pod("llama-0", 0), pod("llama-0", 1), pod("notebook", 2, "gpu")]).map(
    (line) => line.name,
  );

  expect(names).toEqual([
    "llama-0 on gpu-01 GPU 0",
    "llama-0 on gpu-01 GPU 1",
    "notebook (whole GPU)",
  ]);
});

test("what a pod was given is the whole of its own use alone", () => {
  const totals = podLines([pod("llama-0", 0), pod("notebook", 2, "gpu")]).map(
    (line) => line.totalMb,
  );

  expect(totals).toEqual([2048, null]);
});

test("a node's line has what there is of memory", () => {
  const node: NodeSeries = { node_id: "gpu-01", gpus: 8, memory_total_mb: 640, points: POINTS };

  expect(nodeLines([node])[0]).toMatchObject({
    name: "gpu-01, 8 GPUs",
    totalMb: 640,
    names: ["gpu-01"],
  });
});

test("what is unknown is not nothing", () => {
  expect([meanOf(POINTS), highestOf(POINTS)]).toEqual([3, 9]);
  expect([meanOf([]), highestOf([])]).toEqual([null, null]);
});
