import { expect, test } from "vitest";
import { duration, roughly } from "./time";
import { gibibytes, number, percent, share, watts } from "./units";

test.each([
  [null, "–"],
  [0, "0"],
  [0.012345, "0.0123"],
  [1.2345, "1.23"],
  [123.45, "123"],
  [1234.5, "1,235"],
])("the number %s is told as %s", (value, told) => {
  expect(number(value)).toBe(told);
});

test("what is unknown is a dash, never 0 and never a bare unit", () => {
  expect([percent(null), watts(undefined), gibibytes(null)]).toEqual(["–", "–", "–"]);
  expect(share(null, 10)).toBeNull();
  expect(share(1, null)).toBeNull();
});

test.each([
  [0, "0 s"],
  [0.4, "0.4 s"],
  [42, "42 s"],
  [185, "3 min 5 s"],
  [7200, "2 h"],
  [7201, "2 h"],
  [90_061, "1 d 1 h"],
  [null, "–"],
])("%s seconds are told as %s", (seconds, told) => {
  expect(duration(seconds)).toBe(told);
});

test("what lies far ahead is told without seconds", () => {
  expect([42, 185, 3241, 7805].map(roughly)).toEqual(["42 s", "3 min 5 s", "54 min", "2 h 10 min"]);
});
