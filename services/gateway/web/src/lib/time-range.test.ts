import { expect, test } from "vitest";
import { customRange, customSpan, rangeQuery, spanOf } from "./time-range";

const NOW = Date.parse("2026-01-02T10:00:00Z");

test("a preset ends now, and what is no range is an hour", () => {
  const lengths = ["30m", "24h", "7d", "x", "b/a"].map((range) => NOW - spanOf(range, NOW).startMs);

  expect(lengths).toEqual([1_800_000, 86_400_000, 604_800_000, 3_600_000, 3_600_000]);
  expect(rangeQuery("30m", NOW)).toEqual({ start_at: "2026-01-02T09:30:00.000Z", end_at: null });
});

test("a custom range keeps its ends in the address", () => {
  const span = { startMs: NOW - 7_200_000, endMs: NOW };
  const range = customRange(span);

  expect(range).toBe("2026-01-02T08:00Z/2026-01-02T10:00Z");
  expect(customSpan(range)).toEqual(span);
  expect(rangeQuery(range, NOW + 5)).toEqual({
    start_at: "2026-01-02T08:00:00.000Z",
    end_at: "2026-01-02T10:00:00.000Z",
  });
  expect(["1h", "2026-01-02T10:00Z/2026-01-02T08:00Z", "a/b/c"].map(customSpan)).toEqual([
    null,
    null,
    null,
  ]);
});
