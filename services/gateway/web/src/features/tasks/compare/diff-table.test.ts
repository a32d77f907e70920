import { expect, test } from "vitest";
import type { BenchmarkMetrics, ExperimentDetail } from "@schemas/messages";
import { diffLines } from "./diff-table";

const compared = (metrics: Partial<BenchmarkMetrics>) =>
  diffLines(
    [1, 2].map(
      () =>
        ({
          parameters: {},
          metrics,
          benchmark: {
            levels: [
              { scenario: "E(64)", num_concurrency: 1, stats: { ttft: null, e2e_latency: null } },
            ],
          },
        }) as unknown as ExperimentDetail,
    ),
    [],
  ).map(({ name }) => name);

test("compared embeddings have no lines of tokens that they have not", () => {
  const names = compared({ mean_items_per_second: 40, max_items_per_second_per_gpu: 40 });

  expect(names).toContain("max items per second per GPU");
  expect(names.filter((name) => /ttft|tpot|output/.test(name))).toEqual([]);
  expect(compared({}).filter((name) => /ttft|tpot|output/.test(name))).toHaveLength(4);
});
