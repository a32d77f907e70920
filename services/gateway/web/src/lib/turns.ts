import type { BenchmarkResult, LevelResult, PrefixCacheUse, TurnResult } from "@schemas/messages";
import { percent } from "./units";

export interface TurnLine {
  level: LevelResult;
  turn: TurnResult;
}

export function turnLines({ levels }: Pick<BenchmarkResult, "levels">): TurnLine[] {
  return levels.flatMap((level) => level.turns.map((turn) => ({ level, turn })));
}

/** Whether something is known of how much of the prompts the engine had before. */
export const hasPrefixShare = ({ prefix_cache: found }: Pick<LevelResult, "prefix_cache">) =>
  found !== null && (found.hit_share !== null || found.asked_share !== null);

/** "61 % of 75 % asked": how much of the prompts came from the cache, of what had been said before. */
export function prefixShareText(found: PrefixCacheUse | null): string | null {
  if (!found || (found.hit_share === null && found.asked_share === null)) return null;
  const realised = found.hit_share === null ? "not told" : percent(found.hit_share * 100);
  return found.asked_share === null ? realised : `${realised} of ${percent(found.asked_share * 100)} asked`;
}
