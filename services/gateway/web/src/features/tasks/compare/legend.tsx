import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ReactNode } from "react";
import type { Compared } from "./charts";
import { labelOf } from "./charts";
import { SHAPES } from "./marks";
import { MOST_PICKED } from "../picked";
import classes from "./legend.module.css";

interface LegendProps {
  compared: Compared;
  toggle: (id: string) => void;
  children?: ReactNode;
}

/** One legend for all charts, in sight as they are scrolled: a press picks an experiment in each of them. */
export function Legend({ compared, toggle, children }: LegendProps) {
  const { picked } = compared;
  return (
    <div className={classes.sticky}>
      <ul className={classes.legend} aria-label={t`experiments in the charts`}>
        {compared.experiments.map((experiment) => {
          const isPicked = picked.includes(experiment.experiment_id);
          const mark = compared.marks.get(experiment.experiment_id);
          return (
            <li key={experiment.experiment_id}>
              <button
                type="button"
                aria-pressed={isPicked}
                disabled={!isPicked && picked.length >= MOST_PICKED}
                data-faint={(picked.length > 0 && !isPicked) || undefined}
                onClick={() => toggle(experiment.experiment_id)}
              >
                <svg viewBox="0 0 10 10" aria-hidden="true">
                  <path
                    d={SHAPES[mark?.shape ?? 0]}
                    style={{ fill: `var(--gs-series-${mark?.series ?? 1})` }}
                  />
                </svg>
                {labelOf(experiment, compared)}
                {experiment.experiment_id === compared.bestId && (
                  <strong>
                    {" "}
                    <Trans>best</Trans>
                  </strong>
                )}
              </button>
            </li>
          );
        })}
      </ul>
      <div className={classes.actions}>{children}</div>
    </div>
  );
}
