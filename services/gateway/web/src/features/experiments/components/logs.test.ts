import { expect, test } from "vitest";
import type { AttemptLogged, LogChunk } from "@schemas/messages";
import { joinLines } from "./logs";

test("a line that was stored and came live is shown once", () => {
  const stored = { attempt_id: "a", offset: 0, next_offset: 10, lines: ["one", "two"] } as LogChunk;
  const came = (attempt_id: string, offset: number, lines: string[]) =>
    ({ attempt_id, offset, next_offset: offset + 5, lines }) as AttemptLogged;

  const lines = joinLines(
    stored,
    [came("a", 5, ["two"]), came("a", 10, ["three"]), came("old", 20, ["x"])],
    "a",
  );

  expect(lines).toEqual(["one", "two", "three"]);
});
