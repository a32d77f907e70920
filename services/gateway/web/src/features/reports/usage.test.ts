import { expect, test } from "vitest";
import { startOf } from "./report-range";
import type { UsageDay, UsageLine } from "@schemas/messages";
import { hoursOf } from "./hours";
import { partsOf, seriesByDay, totalOf } from "./usage";

test("the parts of GPU time add up to all of it", () => {
  const parts = partsOf({
    used_us: 3600e6,
    idle_us: 1800e6,
    free_us: 1800e6,
    cordoned_us: 0,
    unknown_us: 0,
  });

  expect(parts.map((part) => part.hours)).toEqual([1, 0.5, 0.5, 0, 0]);
  expect(parts.reduce((sum, part) => sum + part.share, 0)).toBe(1);
});

test("without any GPU time nothing is divided", () => {
  const none = { used_us: 0, idle_us: 0, free_us: 0, cordoned_us: 0, unknown_us: 0 };

  expect(partsOf(none).every((part) => part.share === 0)).toBe(true);
});

test("within an hour a report begins at the same time", () => {
  const hour = Date.parse("2026-01-10T10:00:00Z");

  expect(startOf("1d", hour + 59 * 60_000)).toBe("2026-01-09T10:00:00.000Z");
  expect(startOf("nonsense", hour)).toBe(startOf("7d", hour));
});

const line = (fields: Partial<UsageLine>): UsageLine =>
  ({
    gpu_hours: 0,
    used_hours: 0,
    idle_hours: 0,
    unknown_hours: 0,
    energy_wh: 0,
    previous_gpu_hours: 0,
    cost: null,
    ...fields,
  }) as UsageLine;

test("a total sums what is known, and a cost where a model has a price", () => {
  const lines = [line({ gpu_hours: 1.5, cost: 3 }), line({ gpu_hours: 0.5 })];

  expect(totalOf(lines, "Total")).toMatchObject({ name: "Total", gpu_hours: 2, cost: 3 });
  expect(totalOf([line({})], "Total").cost).toBeNull();
});

test("days are series by name, the most hours first, the others last", () => {
  const days: UsageDay[] = [
    { day_at: "2026-01-01T00:00:00Z", gpu_hours: { a: 1 }, other_hours: 0 },
    { day_at: "2026-01-02T00:00:00Z", gpu_hours: { a: 1, b: 9 }, other_hours: 2 },
  ];

  expect(seriesByDay(days, "others")).toEqual([
    { name: "b", hours: [0, 9] },
    { name: "a", hours: [1, 1] },
    { name: "others", hours: [0, 2] },
  ]);
});

test("hours have two decimals, and some are never none", () => {
  expect([0, 0.00733, 0.001, 7.5, 1234.5].map(hoursOf)).toEqual([
    "0.00",
    "0.01",
    "< 0.01",
    "7.50",
    "1,234.50",
  ]);
});
