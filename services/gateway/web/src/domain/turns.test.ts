import { expect, test } from "vitest";
import type { LevelResult, PrefixCacheUse } from "@schemas/messages";
import { hasPrefixShare, prefixShareText, turnLines } from "./turns";

const use = (hit_share: number | null, asked_share: number | null) =>
  ({ reset: "verified", hit_share, asked_share }) as PrefixCacheUse;

test("the realised share of prefix hits stands beside the asked one", () => {
  expect(prefixShareText(use(0.61, 0.75))).toMatch(/^61.% of 75.% asked$/);
  expect(prefixShareText(use(null, 0.75))).toMatch(/^unknown of 75.% asked$/);
  expect(prefixShareText(use(0, null))).toMatch(/^0.%$/);
});

test("an engine that tells nothing of its cache has no share", () => {
  expect(prefixShareText(use(null, null))).toBeNull();
  expect(hasPrefixShare({ prefix_cache: use(null, null) })).toBe(false);
  expect(hasPrefixShare({ prefix_cache: null })).toBe(false);
});

test("turns are told by level, and single requests have none", () => {
  const levels = [
    { num_concurrency: 1, turns: [] },
    { num_concurrency: 2, turns: [{ turn: 1 }, { turn: 2 }] },
  ] as unknown as LevelResult[];

  expect(
    turnLines({ levels }).map(({ level, turn }) => [level.num_concurrency, turn.turn]),
  ).toEqual([
    [2, 1],
    [2, 2],
  ]);
});
