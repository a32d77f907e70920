import { expect, test } from "vitest";
import type { ExperimentDetail, TaskView } from "@schemas/messages";
import {
  gpusText,
  leadPercent,
  leadWords,
  ofTotal,
  otherSetting,
  rankExperiments,
  runsOf,
  taskSums,
} from "./task-sums";

const task = { objective: "minimize_latency", best_experiment_id: "b" } as TaskView;
const setting = {
  gpu_models: [],
  memory_total_mb: [],
  mig_profiles: [],
  power_limits_w: [],
  driver_versions: [],
};
const SEARCH = { role: "search", repeats: null, contaminated: [], image_digest: "", setting };
const experiment = (experiment_id: string, objective_score: number | null, failed = 0) =>
  ({
    experiment_id,
    ordinal: experiment_id.charCodeAt(0),
    objective_score,
    metrics: { failed_levels: Array.from({ length: failed }) },
    gpu_info: null,
    parameters: {},
    run: SEARCH,
    request: { gpus: 2 },
  }) as unknown as ExperimentDetail;

test("what failed at a load that others served has no rank, however good its score", () => {
  const all = [
    experiment("a", 3),
    experiment("b", 2),
    experiment("c", 1, 1),
    experiment("d", null),
  ];

  expect(rankExperiments(task, all).map((experiment) => experiment.experiment_id)).toEqual([
    "b",
    "a",
  ]);
});

test("what misses a constraint comes after all that keeps it, by how far", () => {
  const missing = (id: string, score: number, excess: number) =>
    ({
      ...experiment(id, score),
      slo: { constraints: [{ constraint: "c", excess }] },
    }) as unknown as ExperimentDetail;
  const all = [
    missing("a", 1, 0.5),
    missing("c", 1.5, 0.1),
    experiment("d", 9),
    experiment("b", 5),
  ];

  expect(rankExperiments(task, all).map((experiment) => experiment.experiment_id)).toEqual([
    "b",
    "d",
    "c",
    "a",
  ]);
});

const runOf = (
  id: string,
  ordinal: number,
  score: number,
  run: Partial<ExperimentDetail["run"]> = {},
) =>
  ({
    ...experiment(id, score),
    ordinal,
    run: { ...SEARCH, ...run },
  }) as unknown as ExperimentDetail;
const again = { role: "repeat", repeats: 1 } as const;

test("runs of one configuration are no rivals: its first has the rank, or the one that the task chose", () => {
  const all = [
    runOf("a", 1, 5),
    runOf("c", 2, 7),
    runOf("b", 3, 4, again),
    runOf("d", 4, 1, { role: "screen" }),
  ];

  expect(
    rankExperiments({ ...task, best_experiment_id: "a" }, all).map(
      (experiment) => experiment.experiment_id,
    ),
  ).toEqual(["a", "c"]);
  expect(rankExperiments(task, all).map((experiment) => experiment.experiment_id)).toEqual([
    "b",
    "c",
  ]);
});

test("what was disturbed, and replays with other requests, do not count for their configuration while it has other runs", () => {
  const all = [
    runOf("a", 1, 5),
    runOf("c", 2, 7, { contaminated: ["throttled"] }),
    runOf("b", 3, 4, again),
    runOf("d", 4, 9, { ...again, contaminated: ["throttled"] }),
    runOf("e", 5, 9, { ...again, role: "replay" }),
  ];

  const runs = runsOf(rankExperiments(task, all), all);

  expect(
    [...runs].map(([first, group]) => [
      first,
      ...group.map((experiment) => experiment.experiment_id),
    ]),
  ).toEqual([
    [1, "a", "b"],
    [2, "c"],
  ]);
});

test("a lead is counted in the direction of the objective", () => {
  expect(leadPercent("minimize_latency", 1, 1.5)).toBeCloseTo(50);
  expect(leadPercent("maximize_throughput", 110, 100)).toBeCloseTo(10);
});

test("a better score that keeps less is not told as a lead", () => {
  const [best, second] = [experiment("a", 100), { ...experiment("b", 125), ordinal: 6 }];

  expect(leadWords("maximize_throughput", best, second)).toMatch(
    /^experiment 6 scores better by 25 %, but/,
  );
  expect(leadWords("maximize_throughput", { ...best, objective_score: 150 }, second)).toBe(
    "better by 20 % than experiment 6",
  );
});

test("GPUs that nobody granted yet are said to be asked for", () => {
  expect(gpusText([experiment("a", null)])).toBe("2 asked for");
  expect(gpusText([])).toBeNull();
});

test("how many GPUs experiments had is told once for each model", () => {
  const of = (count: number, model = "H200") =>
    ({ ...experiment("a", null), gpu_info: { count, model } }) as unknown as ExperimentDetail;

  expect(gpusText([of(4), of(1), of(2), of(1)])).toBe("1, 2 or 4 × H200");
  expect(gpusText([of(1), of(2, "H100")])).toBe("2 × H100; 1 × H200");
});

test("a search may go on to its limit; one that ended has no more", () => {
  const search = {
    experiments_by_state: {},
    experiments_total: 3,
    experiments_at_most: 50,
  } as unknown as TaskView;

  expect(ofTotal(taskSums({ ...search, state: "running" }))).toBe("of at most 50");
  expect(ofTotal(taskSums({ ...search, state: "completed" }))).toBe("of 3");
});

test("a verdict gives the order, whatever the first runs scored", () => {
  const all = [runOf("a", 1, 5), runOf("c", 2, 7), runOf("d", 3, 6)];
  const trust = { order: [{ ordinal: 3 }, { ordinal: 1 }] } as unknown as TaskView["trust"];

  expect(
    rankExperiments({ ...task, best_experiment_id: "d", trust }, all).map(
      (experiment) => experiment.experiment_id,
    ),
  ).toEqual(["d", "a"]);
});

test("what ran on another GPU model is not compared, and why is told", () => {
  const on = (id: string, model: string) =>
    ({
      ...experiment(id, 1),
      run: { ...SEARCH, setting: { ...setting, gpu_models: [model] } },
    }) as unknown as ExperimentDetail;
  const [other, best] = [on("a", "A100"), on("b", "H100")];

  expect(
    rankExperiments(task, [other, best]).map((experiment) => experiment.experiment_id),
  ).toEqual(["b"]);
  expect(otherSetting(best, other)).toBe("GPU model A100");
  expect(otherSetting(best, experiment("c", 1))).toBeNull();
});
