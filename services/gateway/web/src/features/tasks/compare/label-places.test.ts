import { expect, test } from "vitest";
import { labelPlaces } from "./label-places";

const size = { width: 40, height: 14 };

test("a label stands right of its point, and where another lies on the other side or a line away", () => {
  const place = labelPlaces();
  const point = { x: 100, y: 50 };

  const places = Array.from({ length: 5 }, () => place(point, size));

  expect(places).toEqual([
    { x: 106, y: 43 },
    { x: 54, y: 43 },
    { x: 106, y: 29 },
    { x: 54, y: 29 },
    { x: 106, y: 57 },
  ]);
});

test("of more points in one place than have room beside it the last are left to the tooltip", () => {
  const place = labelPlaces();

  const places = Array.from({ length: 12 }, () => place({ x: 100, y: 50 }, size));

  expect(places.filter(Boolean)).toHaveLength(10);
});

test("a label does not leave the chart to the left", () => {
  const place = labelPlaces();

  expect([place({ x: 20, y: 50 }, size), place({ x: 20, y: 50 }, size)].map((at) => at?.x)).toEqual(
    [26, 26],
  );
});
