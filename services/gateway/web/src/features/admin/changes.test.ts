import { expect, test } from "vitest";
import { changesOf } from "./changes";

test("a change tells what is not as it was, and what was made or is gone", () => {
  expect(changesOf({ gpu_limit: 4, weight: 1 }, { gpu_limit: 8, weight: 1 })).toEqual([
    "gpu_limit: 4 → 8",
  ]);
  expect(changesOf(null, { state: "queued" })).toEqual(["state: queued"]);
  expect(changesOf({ state: "held" }, null)).toEqual(["state: held → none"]);
  expect(
    changesOf({ labels: { zone: "a", disk: "b" } }, { labels: { zone: "c", disk: "b" } }),
  ).toEqual(["labels.zone: a → c"]);
  expect(changesOf({ labels: { a: 1 } }, { labels: { a: 1 } })).toEqual([]);
  expect(changesOf(null, null)).toEqual([]);
});
