import { expect, test } from "vitest";
import { experimentsAtMost, gpuHoursAtMost, gpusOf, priceRange } from "./estimate";

test("GPU time ends with the budget, and is unknown where nothing bounds it", () => {
  const limited = { optimization: { timeout_per_iteration: 1800 } };

  expect(gpuHoursAtMost(8, 2, limited)).toBe(8);
  expect(gpuHoursAtMost(8, 2, { optimization: { timeout_per_iteration: 1800, max_gpu_hours: 3 } })).toBe(3);
  expect(gpuHoursAtMost(8, null, limited)).toBeNull();
  expect(gpuHoursAtMost(8, null, { optimization: { max_gpu_hours: 3 } })).toBe(3);
  expect(gpusOf({ gpus: 2, nodes: 3 })).toBe(6);
  expect(gpusOf({ gpus: 1, nodes: 1, shares: 0.5 })).toBe(0.5);
});

test("a search has as many experiments as it may try", () => {
  expect(experimentsAtMost({ total: 0, experiments_at_most: 50 })).toBe(50);
  expect(experimentsAtMost({ total: 4, experiments_at_most: 0 })).toBe(4);
});

test("a price is what was paid for an hour; a model without one has none", () => {
  const lines = [
    { name: "NVIDIA H200", gpu_hours: 2, cost: 7 },
    { name: "NVIDIA A100", gpu_hours: 10, cost: 18 },
    { name: "NVIDIA L4", gpu_hours: 1, cost: null },
    { name: "NVIDIA T4", gpu_hours: 0, cost: 0 },
  ];

  expect(priceRange(lines, [])).toEqual([1.8, 3.5]);
  expect(priceRange(lines, ["h200"])).toEqual([3.5, 3.5]);
  expect(priceRange(lines, ["L4"])).toBeNull();
});
