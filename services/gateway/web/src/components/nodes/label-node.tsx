import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Textarea } from "@mantine/core";
import { useState } from "react";
import type { NodeView } from "@schemas/messages";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Failure } from "@/components/page";
import { useLabelNode } from "@/lib/api/label-node";
import { changedLabels, labelsIn, labelText } from "./labels";

interface LabelDialogProps {
  node: NodeView;
  onClose: () => void;
}

/** A line for each label, as `gpusteward node label` takes them. */
export function LabelDialog({ node, onClose }: LabelDialogProps) {
  const [text, setText] = useState(() => labelText(node.labels));
  const label = useLabelNode();
  const { labels, wrong } = labelsIn(text);
  const { changes, before } = changedLabels(node.labels, labels);
  const isUnchanged = Object.keys(changes).length === 0;
  return (
    <Dialog onClose={onClose} title={t`Labels of ${node.node_id}`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          label.mutate({ nodeId: node.node_id, changes, before }, { onSuccess: onClose });
        }}
      >
        <Textarea
          label={t`Labels`}
          description={t`One on each line: zone=a. They win over what the agent of the node reports.`}
          autosize
          minRows={4}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          error={wrong && t`expected key=value, got ${wrong}`}
          data-autofocus
          mb="sm"
        />
        {label.error && <Failure error={label.error} />}
        <DialogActions onCancel={onClose}>
          <Button type="submit" loading={label.isPending} disabled={wrong !== null || isUnchanged}>
            <Trans>Set labels</Trans>
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}
