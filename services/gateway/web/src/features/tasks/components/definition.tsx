import { t } from "@lingui/core/macro";
import { SegmentedControl } from "@mantine/core";
import { stringify } from "yaml";
import type { TaskView } from "@schemas/messages";
import { CodeBlock } from "@/components/code-block";
import { useUrlState } from "@/lib/url-state";
import { DefinitionDiff } from "./definition-diff";

/** The file that the task was submitted with, and what another task has otherwise. */
export default function Definition({ task }: { task: TaskView }) {
  const [format, setFormat] = useUrlState("format", "yaml");
  const text =
    format === "json"
      ? `${JSON.stringify(task.task, null, 2)}\n`
      : stringify(task.task, {
          flowCollectionPadding: false,
          lineWidth: 0,
          collectionStyle: "any",
        });
  return (
    <>
      {task.notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
      <CodeBlock
        text={text}
        label={t`task file`}
        fileName={`${task.task_name}.${format}`}
        choices={
          <SegmentedControl
            size="xs"
            aria-label={t`File format`}
            data={[
              { value: "yaml", label: "YAML" },
              { value: "json", label: "JSON" },
            ]}
            value={format}
            onChange={setFormat}
          />
        }
      />
      <DefinitionDiff task={task} />
    </>
  );
}
