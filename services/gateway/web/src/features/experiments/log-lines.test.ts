import { expect, test } from "vitest";
import type { AttemptLogged, LogChunk } from "@schemas/messages";
import { filtered, joinLines, levelled } from "./log-lines";

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

test("a line has the level that it says, and a traceback that of its first line", () => {
  const lines = levelled([
    "INFO 01-01 starting",
    "Traceback (most recent call last):",
    '  File "engine.py", line 3',
    "RuntimeError: CUDA out of memory",
    "WARNING: slow tokenizer",
    "listening on port 8000",
    "DEBUG details",
  ]);

  expect(lines.map(({ level }) => level)).toEqual([
    "info",
    "error",
    "error",
    "error",
    "warning",
    "info",
    "debug",
  ]);
});

test("lines are found by words in any case, from a level on", () => {
  const lines = levelled(["INFO Model loaded", "ERROR model is gone", "DEBUG model"]);

  expect(filtered(lines, "MODEL", "info").map(({ number }) => number)).toEqual([1, 2]);
  expect(filtered(lines, "", "error").map(({ number }) => number)).toEqual([2]);
  expect(filtered(lines, "", "debug")).toHaveLength(3);
});
