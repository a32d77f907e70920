import { t } from "@lingui/core/macro";
import type { TaskView } from "@schemas/messages";
import { Meter } from "@/components/meter";
import { percent } from "@/lib/units";
import { endedPercent, ofTotal, taskSums } from "../task-sums";
import classes from "./task-progress.module.css";

/** How many experiments are in which state, and what share of them has ended. */
export function TaskProgress({ task }: { task: TaskView }) {
  const sums = taskSums(task);
  const { done, running, waiting, failed, total } = sums;
  const part = (count: number) => count / Math.max(1, total);
  return (
    <div className={classes.progress}>
      {done} / {running} / {waiting} / {failed}
      <span className="dim"> {ofTotal(sums)}</span>
      <div className={classes.bar}>
        <Meter
          label={t`${done} ${ofTotal(sums)} done, ${failed} failed`}
          parts={[
            { share: part(done), series: 3, title: t`${done} done` },
            { share: part(running), series: 1, title: t`${running} running` },
            { share: part(failed), series: 2, title: t`${failed} failed or cancelled` },
          ]}
        />
        <span>{percent(endedPercent(sums))}</span>
      </div>
    </div>
  );
}
