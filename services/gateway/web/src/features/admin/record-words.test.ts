import { expect, test } from "vitest";
import { recordWords } from "./record-words";

test("a record is told by how often each kind is in it", () => {
  expect(
    recordWords([{ type: "device_seen" }, { type: "request_queued" }, { type: "device_seen" }]),
  ).toBe("2 × device seen, request queued");
  expect([recordWords([]), recordWords(null), recordWords([1, null])]).toEqual(["", "", ""]);
});
