import { expect, test } from "vitest";
import type { LevelResult, LoadBoundary } from "@schemas/messages";
import {
  areWhole,
  boundaryText,
  bracketText,
  isWhole,
  levelName,
  loadAxis,
  loadOf,
  requestText,
} from "./levels";

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

test("a level says what each request had, and whether its answers came whole", () => {
  const of = (scenario: string, batch_size = 1, items_per_second: number | null = null) =>
    ({ scenario, batch_size, items_per_second }) as LevelResult;

  expect(
    ["I(640,480,2)", "I(64,32)", "D(1,2)"].map((scenario) => requestText(of(scenario))),
  ).toEqual([
    "images in each request: 2, of 640 × 480 pixels",
    "images in each request: 1, of 64 × 32 pixels",
    "",
  ]);
  expect([requestText(of("E(64)", 8)), requestText(of("R(9,2)", 5))]).toEqual([
    "inputs in each request: 8",
    "documents in each request: 5",
  ]);
  expect([isWhole(of("E(64)", 8, 40)), isWhole(of("I(64,32)"))]).toEqual([true, false]);
  expect(areWhole([{ metrics: null }])).toBe(false);
});
