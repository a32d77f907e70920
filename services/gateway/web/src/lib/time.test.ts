import { expect, test } from "vitest";
import { agoText, moment, zonedMoment } from "./time";

const NOW = new Date(2026, 1, 1, 0, 5, 9);
const near = (ms: number) => new Date(NOW.getTime() + ms).toISOString();
const HOUR_MS = 3600_000;

test("the hour after midnight is 00, not 24", () => {
  expect(moment(NOW.toISOString(), NOW.getTime())).toBe("today 00:05");
});

test("a moment says its day, and its year where it is another", () => {
  const texts = [
    near(-HOUR_MS),
    near(24 * HOUR_MS),
    near(-48 * HOUR_MS),
    near(-400 * 24 * HOUR_MS),
  ];

  const [yesterday, tomorrow, days, year] = texts.map((at) => moment(at, NOW.getTime()));

  expect([yesterday, tomorrow]).toEqual(["yesterday 23:05", "tomorrow 00:05"]);
  expect(days).toMatch(/Jan.* 00:05$/);
  expect(year).toContain("2024");
});

test("a zoned moment ends with its zone", () => {
  expect(zonedMoment(NOW.toISOString(), NOW.getTime())).toMatch(/^today 00:05 \(.+\)$/);
});

test("ages are told in two units, what is to come by when", () => {
  expect(agoText(near(-3 * HOUR_MS), NOW.getTime())).toBe("3 h ago");
  expect(agoText(near(2 * HOUR_MS), NOW.getTime())).toBe("in 2 h");
});
