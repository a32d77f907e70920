import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Checkbox, TextInput } from "@mantine/core";
import { useState } from "react";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Failure } from "@/components/page";
import { useRemoveNode } from "@/lib/api/remove-node";
import { HeldOnNode } from "./held-on-node";

interface RemoveDialogProps {
  nodeId: string;
  onClose: () => void;
  /** After it, where the node's own page is left. */
  onRemoved?: () => void;
}

/** For a node that has left for good; the gateway refuses for one that still reports. */
export function RemoveDialog({ nodeId, onClose, onRemoved }: RemoveDialogProps) {
  const [reason, setReason] = useState("");
  const [endsHeld, setEndsHeld] = useState(false);
  const remove = useRemoveNode();

  function send(): void {
    remove.mutate(
      { nodeId, endsHeld, reason },
      {
        onSuccess: () => {
          onClose();
          onRemoved?.();
        },
      },
    );
  }

  return (
    <Dialog onClose={onClose} title={t`Remove node ${nodeId}?`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <p>
          <Trans>
            <strong>This forgets the node and its GPUs, and cannot be undone.</strong> A node that
            reports again is new and waits for admission. Stop its agent first: a node that still
            reports is not removed.
          </Trans>
        </p>
        <HeldOnNode nodeId={nodeId} />
        <Checkbox
          label={t`Nothing is running there any more: end what is reserved on it`}
          checked={endsHeld}
          onChange={(event) => setEndsHeld(event.currentTarget.checked)}
          mb="sm"
        />
        <TextInput
          label={t`Reason`}
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
          data-autofocus
          mb="sm"
        />
        {remove.error && <Failure error={remove.error} />}
        <DialogActions onCancel={onClose}>
          <Button type="submit" color="red" loading={remove.isPending}>
            <Trans>Remove {nodeId}</Trans>
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}
