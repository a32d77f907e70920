import { expect, test } from "vitest";
import { secondsOf } from "./get-series";

test("a range of the address is seconds, and an unknown one an hour", () => {
  expect(["30m", "24h", "7d", "x"].map(secondsOf)).toEqual([1_800, 86_400, 604_800, 3_600]);
});
