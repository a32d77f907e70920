import { Button, Checkbox, Group, TextInput } from "@mantine/core";
import { useState } from "react";
import { Dialog } from "@/components/dialog";
import { Failure } from "@/components/page";
import { useIsAdmin } from "@/lib/api/get-me";
import { EndedByDrain } from "./ended-by-drain";
import { useSetService, type ServiceChange } from "../api/set-service";

const EXPLANATIONS = {
  cordon: "No new grants; running work continues.",
  uncordon: "New requests can be granted again.",
  drain: "No new grants, and running reservations are ended.",
};

interface ServiceActionsProps {
  nodeId: string;
  /** Without one the whole node is meant. */
  deviceUuid?: string;
  isCordoned: boolean;
  isQuarantined?: boolean;
}

/** For admins; others see no button that would be refused. */
export function ServiceActions(props: ServiceActionsProps) {
  const { nodeId, deviceUuid, isCordoned, isQuarantined = false } = props;
  const [action, setAction] = useState<ServiceChange["action"] | null>(null);
  if (!useIsAdmin()) return null;
  const offered = [
    isCordoned || isQuarantined ? "uncordon" : "cordon",
    ...(deviceUuid ? [] : ["drain"]),
  ] as ServiceChange["action"][];
  return (
    <>
      {offered.map((action) => (
        // One button that changes its word, and keeps the focus.
        <Button
          key={action === "drain" ? "drain" : "cordon"}
          size="compact-xs"
          variant="default"
          onClick={() => setAction(action)}
        >
          {action[0]?.toUpperCase()}
          {action.slice(1)}
        </Button>
      ))}
      {action && (
        <ServiceDialog
          action={action}
          nodeId={nodeId}
          deviceUuid={deviceUuid ?? null}
          asksForStop={isQuarantined}
          onClose={() => setAction(null)}
        />
      )}
    </>
  );
}

interface ServiceDialogProps {
  action: ServiceChange["action"];
  nodeId: string;
  deviceUuid: string | null;
  asksForStop: boolean;
  onClose: () => void;
}

function ServiceDialog({ action, nodeId, deviceUuid, asksForStop, onClose }: ServiceDialogProps) {
  const [reason, setReason] = useState("");
  const [isStopped, setStopped] = useState(false);
  const change = useSetService();
  const what = deviceUuid ? `GPU ${deviceUuid} of ${nodeId}` : `node ${nodeId}`;

  function send(): void {
    const bodies = {
      cordon: { device_uuid: deviceUuid, reason },
      uncordon: { device_uuid: deviceUuid, reason, confirm_stopped: isStopped },
      drain: { reason },
    };
    change.mutate({ action, nodeId, body: bodies[action] }, { onSuccess: onClose });
  }

  return (
    <Dialog onClose={onClose} title={`${action}: ${what}`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <p className="dim">{EXPLANATIONS[action]}</p>
        {action === "drain" && <EndedByDrain nodeId={nodeId} />}
        <TextInput
          label="Reason"
          description="Shown to everyone who waits for this GPU"
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
          data-autofocus
          mb="sm"
        />
        {asksForStop && action === "uncordon" && (
          <Checkbox
            label="I have verified that nothing is running there"
            checked={isStopped}
            onChange={(event) => setStopped(event.currentTarget.checked)}
            mb="sm"
          />
        )}
        {change.error && <Failure error={change.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button
            type="submit"
            loading={change.isPending}
            color={action === "drain" ? "red" : undefined}
          >
            {action === "drain" ? `Drain ${nodeId}` : action}
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
