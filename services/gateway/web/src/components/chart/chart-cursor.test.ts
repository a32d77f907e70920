import { expect, test } from "vitest";
import { movedPlace, countPoints } from "./chart-cursor";

const at = (series: number, point: number) => ({ series, point });

test("a cursor visits what the mouse can point at", () => {
  const series = [
    { type: "line" as const, name: "band", silent: true, data: [1, 2] },
    { type: "line" as const, name: "mean", data: [1, 2, 3] },
    { type: "line" as const, name: "off", data: [1] },
    { type: "line" as const, name: "quiet", tooltip: { show: false }, data: [1] },
  ];

  expect(countPoints({ series }, new Set(["off"]))).toEqual([0, 3, 0, 0]);
});

test.each([
  ["ArrowRight", at(1, 0), at(1, 1)],
  ["ArrowRight", at(1, 4), at(1, 4)],
  ["ArrowLeft", at(1, 0), at(1, 0)],
  ["End", at(1, 0), at(1, 4)],
  ["Home", at(1, 3), at(1, 0)],
  ["ArrowDown", at(1, 4), at(3, 1)],
  ["ArrowDown", at(3, 1), at(3, 1)],
  ["ArrowUp", at(3, 1), at(1, 1)],
  ["ArrowDown", null, at(1, 0)],
  ["End", null, at(1, 0)],
])("%s leads from %o to %o", (key, from, to) => {
  expect(movedPlace([0, 5, 0, 2], from, key)).toEqual(to);
});

test("a page is a tenth of a long series", () => {
  expect(movedPlace([300], at(0, 100), "PageDown")).toEqual(at(0, 130));
});

test("a series that is switched off loses the cursor to the first that is not", () => {
  expect(movedPlace([0, 5], at(0, 3), "ArrowRight")).toEqual(at(1, 0));
});

test("no other key is taken, and nowhere is anything to visit in an empty chart", () => {
  expect(movedPlace([5], at(0, 0), "a")).toBeNull();
  expect(movedPlace([0], null, "ArrowRight")).toBeNull();
});
