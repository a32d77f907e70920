import { expect, test } from "vitest";
import { moment } from "./time";

test("the hour after midnight is 00, not 24", () => {
  const at = new Date(2026, 1, 1, 0, 5, 9);

  expect(moment(at.toISOString(), at.getTime())).toBe("00:05:09");
});
