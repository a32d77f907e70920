import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { useState } from "react";
import { FINISHED_TASK_STATES, type TaskView } from "@schemas/messages";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Failure } from "@/components/page";
import { useMe } from "@/lib/api/get-me";
import { useChangeTask } from "../api/change-task";
import { taskSums } from "../task-sums";

/** For those who may change it, while it is not over. */
export function TaskActions({ task }: { task: TaskView }) {
  const me = useMe();
  const change = useChangeTask(task);
  const [isAsked, setAsked] = useState(false);
  const dialog = isAsked && <CancelDialog task={task} onClose={() => setAsked(false)} />;
  // The dialog stays where the task ended meanwhile: it says what came of the change.
  if (me?.role === "viewer" || FINISHED_TASK_STATES.includes(task.state)) return dialog;
  // What failed is tried again: its answer may be lost and the task be paused, and then it would be resumed.
  const failed = change.isError ? change.variables : null;
  const next = failed ?? (task.state === "paused" ? "resume" : "pause");
  return (
    <>
      {change.error && <Failure error={change.error} />}
      <Button
        size="xs"
        variant="default"
        loading={change.isPending}
        onClick={() => change.mutate(next)}
      >
        {next === "resume" ? t`Resume` : t`Pause`}
      </Button>
      <Button
        size="xs"
        variant="default"
        color="red"
        disabled={task.cancel_requested}
        onClick={() => setAsked(true)}
      >
        <Trans>Cancel</Trans>
      </Button>
      {dialog}
    </>
  );
}

function CancelDialog({ task, onClose }: { task: TaskView; onClose: () => void }) {
  const change = useChangeTask(task);
  const { running, waiting, done } = taskSums(task);
  return (
    <Dialog title={t`Cancel ${task.task_name}`} onClose={onClose}>
      <p>
        <Trans>
          {running} running experiments are stopped, {waiting} are not started. The {done} that
          succeeded stay. A cancelled task cannot be resumed.
        </Trans>
      </p>
      {change.error && <Failure error={change.error} />}
      <DialogActions onCancel={onClose} cancelWord={t`Keep it`}>
        <Button
          color="red"
          loading={change.isPending}
          onClick={() => change.mutate("cancel", { onSuccess: onClose })}
        >
          <Trans>Cancel the task</Trans>
        </Button>
      </DialogActions>
    </Dialog>
  );
}
