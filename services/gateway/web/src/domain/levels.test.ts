import { expect, test } from "vitest";
import type { LoadBoundary } from "@schemas/messages";
import { boundaryText, bracketText, levelName, loadAxis, loadOf } from "./levels";

const level = (num_concurrency: number, arrivals: string | null = null) => ({
  scenario: "D(1,1)",
  num_concurrency,
  arrivals,
});

test("a load is a number of requests at once, or what is sent per second", () => {
  const levels = [
    level(4),
    level(4, "closed(4)"),
    level(1024, "poisson(2.5)"),
    level(1024, "burst(20,5)"),
  ];

  expect(levels.map(loadOf)).toEqual([4, 4, 2.5, 20]);
  expect(levels.map(levelName).slice(1, 3)).toEqual(["D(1,1) × 4", "D(1,1) × poisson(2.5)"]);
  expect(loadOf({ ...level(1024, "trace"), requests_per_second: 3 })).toBe(3);
  expect([levels.slice(0, 2), levels.slice(2), levels].map(loadAxis)).toEqual([
    "concurrency (requests at once)",
    "load (requests sent per second)",
    "load (requests at once, or sent per second)",
  ]);
});

test("a greatest load is told with what it lies between", () => {
  const boundary = { load: "concurrency", low: 90, high: 97, estimate: 93.4 } as LoadBoundary;

  expect(boundaryText(boundary)).toBe("93.4 (90 to 97)\u202frequests at once");
  expect(boundaryText({ ...boundary, high: null, load: "poisson" })).toBe(
    "93.4 or more\u202freq/s",
  );
  expect(boundaryText({ ...boundary, estimate: null })).toBe("none");
  expect(bracketText(null)).toBe("–");
});
