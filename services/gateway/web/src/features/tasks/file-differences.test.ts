import { expect, test } from "vitest";
import { fieldsThatDiffer } from "./file-differences";

test("two files differ by the fields whose values do, with what one alone has", () => {
  const here = { name: "a", benchmark: { loads: [1, 4], tool: "builtin" }, slo: null };
  const there = { name: "a", benchmark: { loads: [1, 8] }, slo: { ttft: 1 } };

  expect(fieldsThatDiffer(here, there)).toEqual([
    { path: "benchmark.loads", here: "[1,4]", there: "[1,8]" },
    { path: "benchmark.tool", here: "builtin", there: null },
    { path: "slo.ttft", here: null, there: "1" },
  ]);
  expect(fieldsThatDiffer(here, here)).toEqual([]);
});
