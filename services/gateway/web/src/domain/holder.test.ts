import { expect, test } from "vitest";
import { heldBy, holderOf } from "./holder";

test("an experiment is called by its task, and others by what they call themselves", () => {
  expect(holderOf("experiment/01a2/chat#3")).toEqual({ name: "chat #3", experimentId: "01a2" });
  expect(holderOf("exec/anna")).toEqual({ name: "exec/anna", experimentId: null });
  expect(holderOf("")).toEqual({ name: "", experimentId: null });
});

test("a holder is told with the person who asked, unless it names them", () => {
  expect(heldBy("experiment/01a2/chat#3", "anna")).toBe("chat #3 of anna");
  expect(heldBy("exec/anna", "anna")).toBe("exec/anna");
  expect(heldBy("exec/anna", "")).toBe("exec/anna");
  expect(heldBy("", "anna")).toBe("anna");
});
