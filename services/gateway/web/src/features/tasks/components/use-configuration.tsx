import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { stringify } from "yaml";
import type { ExperimentDetail, TaskView } from "@schemas/messages";
import { CodeBlock } from "@/components/code-block";
import { Dialog } from "@/components/dialog";
import { Loaded } from "@/components/page";
import { Tabbed } from "@/components/tabbed";
import { useUrlState } from "@/lib/url-state";
import { deploymentsOptions } from "../api/get-deployments";
import { taskFileOf } from "../task-file-of";

interface UseConfigurationProps {
  task: TaskView;
  best: ExperimentDetail;
  onClose: () => void;
}

/** The best configuration in every form in which people run it. */
export default function UseConfiguration({ task, best, onClose }: UseConfigurationProps) {
  const deployments = useQuery(deploymentsOptions(task.task_id));
  return (
    <Dialog
      size="xl"
      title={t`Use the configuration of experiment ${best.ordinal}`}
      onClose={onClose}
    >
      <Loaded query={deployments}>
        {(forms) => (
          <Forms
            notes={forms.notes}
            forms={[
              [t`Command`, forms.command_line, "serve.sh"],
              [t`Docker Compose`, forms.compose, "compose.yaml"],
              [t`Kubernetes Deployment`, forms.deployment, "deployment.yaml"],
              [t`OME InferenceService`, forms.inference_service, "inference-service.yaml"],
              [
                t`Task file`,
                task.task ? stringify(taskFileOf(task.task, best.ordinal, best.parameters)) : "",
                "task.yaml",
              ],
            ]}
          />
        )}
      </Loaded>
    </Dialog>
  );
}

type Form = [name: string, text: string, fileName: string];

function Forms({ forms, notes }: { forms: Form[]; notes: string[] }) {
  const there = forms.filter(([, text]) => text !== "");
  const [tab, setTab] = useUrlState("form", there[0]?.[2] ?? "");
  const chosen = there.some(([, , fileName]) => fileName === tab) ? tab : (there[0]?.[2] ?? "");
  return (
    <>
      {notes.length > 0 && (
        <ul className="dim">
          {notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
      {there.length === 0 && (
        <p>
          <Trans>There is no form of this configuration to copy.</Trans>
        </p>
      )}
      <Tabbed
        tabs={there.map(([word, text, fileName]) => ({
          value: fileName,
          word,
          content: <CodeBlock text={text} label={word} fileName={fileName} />,
        }))}
        chosen={chosen}
        onChoose={setTab}
      />
    </>
  );
}
