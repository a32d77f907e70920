import { expect, test } from "vitest";
import { experimentsAtMost, gpusOf } from "./estimate";

test("a request holds whole GPUs of all its nodes, or a part of one", () => {
  expect(gpusOf({ gpus: 2, nodes: 3 })).toBe(6);
  expect(gpusOf({ gpus: 1, nodes: 1, shares: 0.5 })).toBe(0.5);
});

test("a search has as many experiments as it may try", () => {
  expect(experimentsAtMost({ total: 0, experiments_at_most: 50 })).toBe(50);
  expect(experimentsAtMost({ total: 4, experiments_at_most: 0 })).toBe(4);
});
