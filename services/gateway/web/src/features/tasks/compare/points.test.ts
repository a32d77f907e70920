import { expect, test } from "vitest";
import type { Distribution, ExperimentDetail, LevelResult } from "@schemas/messages";
import {
  cumulative,
  importances,
  isSame,
  isWithinSlo,
  knee,
  levelPoints,
  paretoFront,
  sloWords,
  type LevelPoint,
} from "./points";

const point = (perUser: number, perGpu: number) => ({ perUser, perGpu }) as LevelPoint;

test("the front has what nothing else beats in both", () => {
  const front = paretoFront([
    point(10, 100),
    point(20, 90),
    point(15, 80),
    point(30, 20),
    point(10, 50),
  ]);

  expect(front.map((point) => [point.perUser, point.perGpu])).toEqual([
    [10, 100],
    [20, 90],
    [30, 20],
  ]);
});

test("a level that was not served is not compared, and throughput counts per GPU", () => {
  const level = (num_concurrency: number) => ({
    scenario: "D(1,1)",
    num_concurrency,
    mean_output_throughput_tokens_per_s: 400,
    stats: { output_inference_speed: { mean: 50 } },
  });
  const experiment = {
    experiment_id: "x",
    ordinal: 1,
    gpu_info: { count: 4 },
    metrics: { failed_levels: [{ scenario: "D(1,1)", num_concurrency: 8 }] },
    benchmark: { levels: [level(1), level(8)] },
  } as unknown as ExperimentDetail;

  expect(levelPoints([experiment])).toMatchObject([
    { perGpu: 100, perUser: 50, level: { num_concurrency: 1 } },
  ]);
});

test("a level keeps the SLO by its own times, and by the constraints of its experiment", () => {
  const slo = { ttft: { threshold: 0.2 }, latency: { p99: { threshold: 2 } } };
  const level = (ttft: number, p99: number) =>
    ({ stats: { ttft: { mean: ttft }, e2e_latency: { p99 } } }) as unknown as LevelResult;
  const experiment = (...excesses: (number | null)[]) =>
    ({
      slo: { constraints: excesses.map((excess) => ({ excess })) },
    }) as unknown as ExperimentDetail;

  expect(isWithinSlo(level(0.2, 2), experiment(0), slo)).toBe(true);
  expect(isWithinSlo(level(0.3, 1), experiment(0), slo)).toBe(false);
  expect(isWithinSlo(level(0.1, 3), experiment(0), slo)).toBe(false);
  expect(isWithinSlo(level(0.1, 1), experiment(0, 0.5), slo)).toBe(false);
  expect(isWithinSlo(level(0.1, 1), experiment(null), slo)).toBe(false);
  expect(isWithinSlo({ stats: {} } as LevelResult, experiment(), slo)).toBe(false);
  expect(sloWords(slo, "tpot:p95<=20ms")).toBe("ttft ≤ 200 ms, e2e p99 ≤ 2,000 ms, tpot:p95<=20ms");
});

test("means within each other's interval are the same, and one request says nothing", () => {
  const of = (mean: number, stddev: number) => ({ mean, stddev }) as Distribution;

  expect(isSame(of(1, 0.2), 25, of(1.05, 0.2), 25)).toBe(true);
  expect(isSame(of(1, 0.01), 25, of(1.05, 0.01), 25)).toBe(false);
  expect(isSame(of(1, 0), 1, of(1.05, 0.2), 25)).toBeNull();
});

test("the knee is where more load buys latency and no throughput", () => {
  const level = (num_concurrency: number, requests_per_second: number, mean: number) =>
    ({ num_concurrency, requests_per_second, stats: { ttft: { mean } } }) as unknown as LevelResult;

  expect(knee([level(1, 2, 1), level(2, 4, 1.1), level(4, 4.2, 3)], "ttft")?.num_concurrency).toBe(
    2,
  );
});

test("a parameter that decides everything explains everything", () => {
  const run = (slots: number, seed: number, objective_score: number) =>
    ({ parameters: { slots, seed }, objective_score }) as unknown as ExperimentDetail;

  const shares = importances(
    [[run(1, 1, 10)], [run(1, 2, 10)], [run(2, 1, 20)], [run(2, 2, 20)]],
    ["seed", "slots"],
  );

  expect(shares).toEqual([
    ["slots", 1],
    ["seed", 0],
  ]);
});

test("importances add up to all of the variance, with a row for what parameters do together", () => {
  const run = (a: number, b: number, objective_score: number) =>
    ({ parameters: { a, b }, objective_score }) as unknown as ExperimentDetail;
  const sum = (shares: [string, number][]) => shares.reduce((total, [, share]) => total + share, 0);

  const together = importances(
    [[run(1, 1, 3)], [run(1, 2, 1)], [run(2, 1, 1)], [run(2, 2, 3)]],
    ["a", "b"],
  );
  const coupled = importances(
    [[run(1, 1, 1)], [run(2, 2, 3)], [run(2, 2, 3)], [run(1, 1, 1)]],
    ["a", "b"],
  );

  expect(together).toEqual([
    ["a", 0],
    ["b", 0],
    ["together, or by chance", 1],
  ]);
  expect(coupled).toEqual([
    ["a", 0.5],
    ["b", 0.5],
  ]);
  expect([sum(together), sum(coupled)]).toEqual([1, 1]);
});

test("a configuration that is measured more often counts once, by its mean", () => {
  const run = (slots: number, objective_score: number) =>
    ({ parameters: { slots }, objective_score }) as unknown as ExperimentDetail;

  const once = importances([[run(1, 12)], [run(1, 14)], [run(2, 20)]], ["slots"]);

  expect(importances([[run(1, 10), run(1, 14)], [run(1, 14)], [run(2, 20)]], ["slots"])).toEqual(
    once,
  );
});

test("a distribution ends at one, however few steps it has", () => {
  expect(cumulative([3, null, 1, 2])).toEqual([
    [1, 1 / 3],
    [2, 2 / 3],
    [3, 1],
  ]);
  expect(
    cumulative(
      Array.from({ length: 1000 }, (_, i) => i),
      10,
    ).at(-1),
  ).toEqual([999, 1]);
});
