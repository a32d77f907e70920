import { expect, test } from "vitest";
import { duration, roughly } from "./time";
import { noLessThan, gibibytes, alignedNumber, number, percent, share, watts } from "./units";

test.each([
  [null, "–"],
  [0, "0"],
  [0.012345, "0.0123"],
  [1.2345, "1.23"],
  [123.45, "123"],
  [1234.5, "1,235"],
])("the number %s is told as %s", (value, text) => {
  expect(number(value)).toBe(text);
});

test("what is unknown is a dash, never 0 and never a bare unit", () => {
  expect([percent(null), watts(undefined), gibibytes(null)]).toEqual(["–", "–", "–"]);
  expect(share(null, 10)).toBeNull();
  expect(share(1, null)).toBeNull();
});

test("numbers of a column have their points under each other", () => {
  expect([3.7, 27, 0.5, 122, 1234.5, 0, null].map(alignedNumber)).toEqual([
    "3.70",
    "27.0",
    "0.500",
    "122",
    "1,235",
    "0",
    "–",
  ]);
  expect([36_984, 37_210].map(watts)).toEqual(["37.0\u202fkW", "37.2\u202fkW"]);
});

test("what is too little to matter is not told with digits that do not", () => {
  expect([0.000322, 0.011, 0].map((hours) => noLessThan(0.001, hours))).toEqual([
    "< 0.001",
    "0.011",
    "0",
  ]);
  expect([620, 62, 122_205].map(gibibytes)).toEqual([
    "0.6\u202fGiB",
    "0.0605\u202fGiB",
    "119\u202fGiB",
  ]);
});

test.each([
  [0, "0 s"],
  [0.03, "< 0.1 s"],
  [0.4, "0.4 s"],
  [42, "42 s"],
  [185, "3 min 5 s"],
  [7200, "2 h"],
  [7201, "2 h"],
  [90_061, "1 d 1 h"],
  [null, "–"],
])("%s seconds are told as %s", (seconds, text) => {
  expect(duration(seconds)).toBe(text);
});

test("what lies far ahead is told without seconds", () => {
  expect([42, 185, 3241, 7805].map(roughly)).toEqual(["42 s", "3 min 5 s", "54 min", "2 h 10 min"]);
});
