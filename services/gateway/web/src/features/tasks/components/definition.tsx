import { Button } from "@mantine/core";
import type { TaskView } from "@schemas/messages";
import { download } from "@/lib/csv";
import classes from "./definition.module.css";

export function Definition({ task }: { task: TaskView }) {
  const text = JSON.stringify(task.task, null, 2);
  return (
    <>
      {task.notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
      <Button
        size="xs"
        variant="default"
        onClick={() => download(`${task.task_name}.json`, text, "application/json")}
      >
        Save as file
      </Button>
      {/* Keyboards scroll it too. */}
      <pre className={classes.file} tabIndex={0} role="region" aria-label="task file">
        {text}
      </pre>
    </>
  );
}
