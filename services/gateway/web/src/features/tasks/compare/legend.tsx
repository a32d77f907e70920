import type { Compared } from "./charts";
import { labelOf } from "./charts";
import { MOST_PICKED, usePicked } from "../picked";
import classes from "./legend.module.css";

/** One legend for all charts: a press picks an experiment in each of them. */
export function Legend({ compared }: { compared: Compared }) {
  const { picked, toggle } = usePicked();
  return (
    <ul className={classes.legend} aria-label="experiments in the charts">
      {compared.experiments.map((experiment) => {
        const isPicked = picked.includes(experiment.experiment_id);
        return (
          <li key={experiment.experiment_id}>
            <button
              type="button"
              aria-pressed={isPicked}
              disabled={!isPicked && picked.length >= MOST_PICKED}
              data-faint={(picked.length > 0 && !isPicked) || undefined}
              onClick={() => toggle(experiment.experiment_id)}
            >
              <i style={{ background: `var(--gs-series-${((experiment.ordinal - 1) % 8) + 1})` }} />
              {labelOf(experiment, compared)}
              {experiment.experiment_id === compared.bestId && <strong> best</strong>}
            </button>
          </li>
        );
      })}
    </ul>
  );
}
