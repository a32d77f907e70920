import { t } from "@lingui/core/macro";
import { Button, Checkbox, TextInput } from "@mantine/core";
import { useState } from "react";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Failure } from "@/components/page";
import { useSetService, type ServiceChange } from "@/lib/api/set-service";
import { HeldOnNode } from "./held-on-node";
import { SERVICE_WORDS } from "./service-words";

const EXPLANATIONS = {
  cordon: t`No new grants; running work continues.`,
  uncordon: t`New requests can be granted again.`,
  drain: t`No new grants, and running reservations are ended.`,
};

interface ServiceDialogProps {
  action: ServiceChange["action"];
  nodeId: string;
  deviceUuid: string | null;
  asksForStop: boolean;
  onClose: () => void;
}

/** Asks before a node or GPU goes out of service, or comes back into it. */
export function ServiceDialog({
  action,
  nodeId,
  deviceUuid,
  asksForStop,
  onClose,
}: ServiceDialogProps) {
  const [reason, setReason] = useState("");
  const [isStopped, setStopped] = useState(false);
  const change = useSetService();
  const what = deviceUuid ? t`GPU ${deviceUuid} of ${nodeId}` : t`node ${nodeId}`;

  function send(): void {
    const bodies = {
      cordon: { device_uuid: deviceUuid, reason },
      uncordon: { device_uuid: deviceUuid, reason, confirm_stopped: isStopped },
      drain: { reason },
    };
    change.mutate({ action, nodeId, body: bodies[action] }, { onSuccess: onClose });
  }

  return (
    <Dialog onClose={onClose} title={`${SERVICE_WORDS[action]}: ${what}`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <p className="dim">{EXPLANATIONS[action]}</p>
        {action === "drain" && <HeldOnNode nodeId={nodeId} />}
        <TextInput
          label={t`Reason`}
          description={t`Shown to everyone who waits for this GPU`}
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
          data-autofocus
          mb="sm"
        />
        {asksForStop && action === "uncordon" && (
          <Checkbox
            label={t`I have verified that nothing is running there`}
            checked={isStopped}
            onChange={(event) => setStopped(event.currentTarget.checked)}
            mb="sm"
          />
        )}
        {change.error && <Failure error={change.error} />}
        <DialogActions onCancel={onClose}>
          <Button
            type="submit"
            loading={change.isPending}
            color={action === "drain" ? "red" : undefined}
          >
            {action === "drain" ? t`Drain ${nodeId}` : SERVICE_WORDS[action]}
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}
