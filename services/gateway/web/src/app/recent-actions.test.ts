// @vitest-environment jsdom
import { beforeEach, expect, test } from "vitest";
import { rememberAction, withRecentFirst } from "./recent-actions";

const ACTIONS = ["a", "b", "c", "d", "e", "f", "g"].map((id) => ({ id, description: "Page" }));
const ids = () => withRecentFirst(ACTIONS).map(({ id }) => id);

beforeEach(() => localStorage.clear());

test("what was chosen last comes first, each once", () => {
  for (const id of ["c", "a", "c"]) rememberAction(id);

  expect(ids()).toEqual(["c", "a", "b", "d", "e", "f", "g"]);
  expect(withRecentFirst(ACTIONS)[0]?.description).toBe("Recent: Page");
});

test("what is no more, or was stored by nobody, is left out", () => {
  localStorage.setItem("gpusteward-recent", '["gone", "b"]');
  expect(ids()[0]).toBe("b");

  localStorage.setItem("gpusteward-recent", "{");
  expect(ids()[0]).toBe("a");
});
