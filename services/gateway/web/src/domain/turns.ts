import { t } from "@lingui/core/macro";
import type { BenchmarkResult, LevelResult, PrefixCacheUse, TurnResult } from "@schemas/messages";
import { percent } from "@/lib/units";

export interface TurnLine {
  level: LevelResult;
  turn: TurnResult;
}

export function turnLines({ levels }: Pick<BenchmarkResult, "levels">): TurnLine[] {
  return levels.flatMap((level) => level.turns.map((turn) => ({ level, turn })));
}

/** Whether something is known of how much of the prompts the engine had before. */
export const hasPrefixShare = ({ prefix_cache: cache }: Pick<LevelResult, "prefix_cache">) =>
  cache !== null && (cache.hit_share !== null || cache.asked_share !== null);

/** "61 % of 75 % asked": how much of the prompts came from the cache, of what had been said before. */
export function prefixShareText(cache: PrefixCacheUse | null): string | null {
  if (!cache || (cache.hit_share === null && cache.asked_share === null)) return null;
  const realised = cache.hit_share === null ? "unknown" : percent(cache.hit_share * 100);
  return cache.asked_share === null
    ? realised
    : t`${realised} of ${percent(cache.asked_share * 100)} asked`;
}
