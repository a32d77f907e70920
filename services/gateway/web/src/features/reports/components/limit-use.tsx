import { t } from "@lingui/core/macro";
import { Meter } from "@/components/meter";
import { number, share } from "@/lib/units";
import classes from "./limit-use.module.css";

interface LimitUseProps {
  now: number;
  /** Over the time that was asked for; null where it is not known. */
  mean: number | null;
  /** null: without a limit; undefined: of what has none, a sum. */
  limit: number | null | undefined;
}

/** What a namespace holds now, against its limit, and what it held on average. */
export function LimitUse({ now, mean, limit }: LimitUseProps) {
  const nowText = number(Math.round(now * 100) / 100);
  const meanText = mean === null ? "–" : number(Math.round(mean * 100) / 100);
  const words =
    limit === undefined
      ? t`now ${nowText}, mean ${meanText}`
      : limit === null
        ? t`now ${nowText}, mean ${meanText}, no limit`
        : t`now ${nowText} of ${limit}, mean ${meanText}`;
  const meanShare = mean === null ? null : share(mean, limit);
  return (
    <span className={classes.use}>
      <span>{words}</span>
      {limit !== null && limit !== undefined && (
        <span className={classes.bar}>
          <Meter label={words} parts={[{ share: share(now, limit) ?? 0 }]} />
          {meanShare !== null && (
            <i className={classes.mean} style={{ left: `${meanShare * 100}%` }} title={t`mean`} />
          )}
        </span>
      )}
    </span>
  );
}
