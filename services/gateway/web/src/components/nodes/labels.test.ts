import { expect, test } from "vitest";
import { changedLabels, labelsIn, labelText } from "./labels";

test("labels are read back from the lines that were written", () => {
  const labels = { zone: "a", "example.com/rack": "b=2" };

  expect(labelsIn(labelText(labels))).toEqual({ labels, wrong: null });
});

test("a line without a value is named", () => {
  expect(labelsIn("zone=a\n\nrack").wrong).toBe("rack");
});

test("only what differs is changed, and can be changed back", () => {
  const { changes, before } = changedLabels(
    { zone: "a", old: "1", same: "x" },
    { zone: "b", same: "x" },
  );

  expect(changes).toEqual({ zone: "b", old: null });
  expect(before).toEqual({ zone: "a", old: "1" });
});
