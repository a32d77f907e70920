import { expect, test } from "vitest";
import { arrowTarget } from "./arrow-target";

// 0 1 2
// 3 4
const boxes = [0, 1, 2, 3, 4].map((at) => ({
  left: (at % 3) * 12,
  top: Math.floor(at / 3) * 12,
  width: 10,
  height: 10,
}));

test.each([
  ["ArrowRight", 2, 3],
  ["ArrowLeft", 3, 2],
  ["ArrowDown", 1, 4],
  ["ArrowDown", 2, 4],
  ["ArrowUp", 3, 0],
  ["End", 0, 4],
  ["Home", 4, 0],
])("%s leads from %i to %i", (key, from, to) => {
  expect(arrowTarget(boxes, from, key)).toBe(to);
});

test.each([
  ["ArrowLeft", 0],
  ["ArrowRight", 4],
  ["ArrowUp", 1],
  ["ArrowDown", 3],
  ["Enter", 1],
])("%s leads nowhere from %i", (key, from) => {
  expect(arrowTarget(boxes, from, key)).toBeNull();
});
