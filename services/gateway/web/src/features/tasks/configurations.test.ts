import { expect, test } from "vitest";
import type { ExperimentDetail, TaskView } from "@schemas/messages";
import { configurationsOf } from "./configurations";

const NO_VERDICT = { trust: null };
const run = (ordinal: number, score: number | null, more: object = {}) =>
  ({
    ordinal,
    objective_score: score,
    run: { role: "search", repeats: null, contaminated: [], ...more },
  }) as unknown as ExperimentDetail;

test("repeats stand under their configuration, with mean and spread", () => {
  const again = { role: "repeat", repeats: 1 };

  const [first, second] = configurationsOf(NO_VERDICT, [
    run(1, 10),
    run(2, 30),
    run(4, 14, again),
    run(3, 12, again),
  ]);

  expect(first?.runs.map(({ ordinal }) => ordinal)).toEqual([1, 3, 4]);
  expect(first).toMatchObject({ counted: 3, meanScore: 12 });
  expect(first?.spreadPercent).toBeCloseTo(16.67, 2);
  expect(second).toMatchObject({ counted: 1, meanScore: 30, spreadPercent: null });
});

test("a disturbed run is set aside with its reason where another counts", () => {
  const busy = { contaminated: ["another process used the GPU"] };

  const [first, alone] = configurationsOf(NO_VERDICT, [
    run(1, 5, busy),
    run(2, 7, busy),
    run(3, 10, { role: "repeat", repeats: 1 }),
    run(4, 99, { role: "replay", repeats: 1 }),
  ]);

  expect([...(first?.setAside ?? [])]).toEqual([
    [1, "another process used the GPU"],
    [4, "measured with other requests"],
  ]);
  expect(first).toMatchObject({ counted: 1, meanScore: 10 });
  expect(alone).toMatchObject({ counted: 1, meanScore: 7 });
});

test("the verdict of the task goes before what the page computes", () => {
  const trust = {
    order: [{ ordinal: 1, runs: 2, mean_score: 11, spread_percent: 1.5 }],
    repeated: [],
    set_aside: [{ ordinal: 2, reason: "clocks were lower" }],
  };

  const [first] = configurationsOf({ trust } as unknown as TaskView, [
    run(1, 10),
    run(2, 3, { role: "repeat", repeats: 1 }),
  ]);

  expect(first).toMatchObject({ counted: 2, meanScore: 11, spreadPercent: 1.5 });
  expect(first?.setAside.get(2)).toBe("clocks were lower");
});

test("nothing measured has neither mean nor spread", () => {
  expect(configurationsOf(NO_VERDICT, [run(1, null)])[0]).toMatchObject({
    counted: 0,
    meanScore: null,
    spreadPercent: null,
  });
});
