import { expect, test } from "vitest";
import { csvOf } from "./csv";

test("quotes are doubled, unknown is empty, and no text is a formula", () => {
  expect(
    csvOf(
      ["name", "power (W)"],
      [
        ['a "b", c', 12.5],
        ["=1+1", null],
      ],
    ),
  ).toBe('name,power (W)\r\n"a ""b"", c",12.5\r\n\'=1+1,\r\n');
});
