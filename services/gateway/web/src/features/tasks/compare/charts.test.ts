import { expect, test } from "vitest";
import { inLines } from "./charts";

test("the name of an axis breaks between words, and a short one not at all", () => {
  expect(inLines("max total throughput per GPU (tok/s)").split("\n")).toEqual([
    "max total throughput",
    "per GPU (tok/s)",
  ]);
  expect(inLines("batch-tokens")).toBe("batch-tokens");
});
