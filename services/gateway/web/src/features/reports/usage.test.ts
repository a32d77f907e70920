import { expect, test } from "vitest";
import { startOf } from "./report-range";
import { partsOf } from "./usage";

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
