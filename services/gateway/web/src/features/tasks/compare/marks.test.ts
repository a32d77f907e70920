import { expect, test } from "vitest";
import type { ExperimentDetail } from "@schemas/messages";
import { marksOf } from "./marks";

const experiments = (ordinals: number[]) =>
  ordinals.map((ordinal) => ({ ordinal, experiment_id: String(ordinal) }) as ExperimentDetail);
const texts = (ordinals: number[]) =>
  [...marksOf(experiments(ordinals)).values()].map(({ series, shape }) => `${series}/${shape}`);

test("no two of the experiments in a chart have the same mark", () => {
  const close = Array.from({ length: 66 }, (_, index) => index + 1);
  const far = Array.from({ length: 66 }, (_, index) => 72 * index + 1);

  expect(new Set(texts(close)).size).toBe(66);
  expect(new Set(texts(far)).size).toBe(66);
});

test("an experiment keeps its mark as a later one comes", () => {
  expect(texts([3, 12]).slice(0, 1)).toEqual(texts([3]));
});
