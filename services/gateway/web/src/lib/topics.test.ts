import { expect, test } from "vitest";
import { staleAfter } from "./topics";

const SOURCES = Object.entries(
  import.meta.glob<string>("../**/api/*.ts", { query: "?raw", import: "default", eager: true }),
);

/** Keys as they are written, with their variables left out: `["tasks", "one", _]`. */
const keysIn = (source: string) =>
  [...source.matchAll(/queryKey: \[([^\]]*)\]/g)].map(([, parts = ""]) =>
    parts
      .split(",")
      .map((part) => (/^\s*"/.test(part) ? part.trim() : "_"))
      .join(", "),
  );

test("a query key is defined in one place", () => {
  const keys = SOURCES.flatMap(([, source]) => keysIn(source));

  expect(keys.length).toBeGreaterThan(30);
  expect(keys.filter((key, index) => keys.indexOf(key) !== index)).toEqual([]);
});

test("a file of api/ asks one question", () => {
  const several = SOURCES.filter(
    ([, source]) => (source.match(/(queryFn|mutationFn):/g) ?? []).length > 1,
  );

  expect(several.map(([path]) => path)).toEqual([]);
});

test("an event of a service makes the answers about its state stale", () => {
  expect(staleAfter("orchestrator.experiment_failed")).toEqual(["tasks", "experiments"]);
  expect(staleAfter("gateway.gpu_metrics")).toEqual([]);
});

test("what every node repeats asks for nothing anew", () => {
  expect(staleAfter("telemetry.inventory_reported")).toEqual([]);
  expect(staleAfter("executor.executor_reported")).toEqual([]);
  expect(staleAfter("telemetry.health_changed")).toContain("gpus");
});
