import { expect, test } from "vitest";
import {
  goalsOf,
  gridSize,
  isAbout,
  MAXIMIZE_LOAD,
  FIRST_DRAFT,
  readDraft,
  uploadOf,
  valueAt,
  valuesOf,
  withGoals,
  withMoved,
  withObjective,
  withTurns,
  withUpload,
  withValue,
  writeDraft,
} from "./draft";

test("a file survives either form", () => {
  const draft = {
    task_name: "a",
    parameters: { slots: [1, 2] },
    benchmark: { traffic_scenarios: ["D(1,1)"] },
  };

  expect(readDraft(writeDraft(draft, "yaml")).draft).toEqual(draft);
  expect(readDraft(writeDraft(draft, "json")).draft).toEqual(draft);
});

test("a parameter is moved by one place, and not beyond the ends", () => {
  const values = { tp: [1], slots: [2], batch: [3] };

  expect(Object.keys(withMoved(values, "slots", -1))).toEqual(["slots", "tp", "batch"]);
  expect(Object.keys(withMoved(values, "slots", 1))).toEqual(["tp", "batch", "slots"]);
  expect(withMoved(values, "batch", 1)).toBe(values);
});

test("what is no object is refused with a reason", () => {
  expect(readDraft("[1]").error).toContain("expected an object");
  expect(readDraft("a: [1").error).not.toBeNull();
});

test("a field is set in a copy, and leaves no empty object behind", () => {
  const draft = { slo: { ttft: { threshold: 1 } } };

  const changed = withValue(draft, "gpus.count", 2);

  expect(valueAt(changed, "gpus.count")).toBe(2);
  expect(withValue(draft, "slo.ttft.threshold", undefined)).toEqual({});
  expect(draft).toEqual({ slo: { ttft: { threshold: 1 } } });
});

test("a search for a load comes with its objective, in place of the loads, and goes with it", () => {
  const draft = {
    optimization: { objective: "minimize_ttft" },
    benchmark: { num_concurrency: [2] },
  };

  const searched = withObjective(draft, MAXIMIZE_LOAD);

  expect(searched.benchmark).toEqual({ load_search: { max: 256 } });
  expect(valueAt(searched, "optimization.constraints")).toContain("ttft");
  expect(withObjective(searched, "minimize_tpot").benchmark).toEqual({ num_concurrency: [1, 4] });
  expect(withObjective(draft, "minimize_tpot").benchmark).toEqual(draft.benchmark);
});

test("several goals take the place of one, in their order, and one that is left stands alone again", () => {
  const draft = {
    optimization: { objective: "minimize_ttft" },
    benchmark: { num_concurrency: [2] },
  };
  const warm = withValue(draft, "optimization.warm_start", true);

  const several = withGoals(warm, [...goalsOf(warm), "minimize_cost"]);

  expect(several.optimization).toEqual({ objectives: ["minimize_ttft", "minimize_cost"] });
  expect(goalsOf(several)).toEqual(["minimize_ttft", "minimize_cost"]);
  expect(withGoals(several, ["minimize_cost"])).toEqual({
    ...draft,
    optimization: { objective: "minimize_cost" },
  });
});

test("the time to think goes with the turns", () => {
  const talk = withValue(withTurns({ task_name: "a" }, 4), "benchmark.think_seconds", 2);

  expect(talk.benchmark).toEqual({ turns: 4, think_seconds: 2 });
  expect(withTurns(talk, 1)).toEqual({ task_name: "a" });
  expect(withTurns(talk, undefined)).toEqual({ task_name: "a" });
});

test("values read as numbers, booleans and texts", () => {
  expect(valuesOf("1, 0.5, 1e-3, true, null, fp8,")).toEqual([1, 0.5, 0.001, true, null, "fp8"]);
  expect(gridSize({ a: [1, 2], b: [1, 2, 3] })).toBe(6);
  expect(gridSize({ a: { type: "integer", low: 1, high: 8 } })).toBeNull();
  expect(gridSize({ a: [1, 2] }, 3)).toBe(6);
  expect(gridSize(undefined, 3)).toBe(3);
});

test("a problem is told at its field", () => {
  expect(isAbout("$.parameters.slots[0]", "parameters.slots")).toBe(true);
  expect(isAbout("$.parameters.slots-max", "parameters.slots")).toBe(false);
  expect(isAbout(null, "task_name")).toBe(false);
});

test("an uploaded file takes the place of made prompts, and gives it back", () => {
  const chosen = withUpload(FIRST_DRAFT, "chats", "dataset");
  const traced = withUpload(chosen, "t", "trace");
  const made = withUpload(traced, "", "dataset");

  expect(uploadOf(chosen)).toBe("chats");
  expect(valueAt(chosen, "benchmark.traffic_scenarios")).toEqual(["dataset"]);
  expect(valueAt(traced, "benchmark.dataset")).toBeUndefined();
  expect(valueAt(traced, "benchmark.trace")).toEqual({ upload: "t" });
  expect(uploadOf(made)).toBe("");
  expect(valueAt(made, "benchmark.traffic_scenarios")).toEqual(["D(100,40)"]);
});
