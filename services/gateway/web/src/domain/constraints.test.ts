import { expect, test } from "vitest";
import type { ExperimentDetail } from "@schemas/messages";
import { brokenBy, excessOf } from "./constraints";

const measured = (...excesses: (number | null)[]) =>
  ({
    slo: {
      constraints: excesses.map((excess, index) => ({ constraint: `c${index}`, excess })),
      quality: null,
    },
  }) as unknown as ExperimentDetail;

test("a constraint that was not measured is not kept", () => {
  expect(brokenBy(measured(0, null, 0.2))).toEqual(["c1", "c2"]);
  expect(excessOf(measured(0, null))).toBe(Infinity);
});

test("without constraints nothing is missed", () => {
  expect(brokenBy({ slo: null })).toEqual([]);
  expect(excessOf({ slo: null })).toBe(0);
  expect(excessOf(measured(0, 0.2))).toBe(0.2);
});
