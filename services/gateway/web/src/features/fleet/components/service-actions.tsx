import { Button, Checkbox, Group, TextInput } from "@mantine/core";
import { useState } from "react";
import { Dialog } from "@/components/dialog";
import { Failure } from "@/components/page";
import { useIsAdmin } from "@/lib/session";
import { useSetService, type ServiceChange } from "../api/set-service";

const EXPLANATIONS = {
  cordon: "Nothing new is granted there; what runs goes on.",
  uncordon: "It is granted again.",
  drain: "Nothing new is granted there, and the reservations that hold it end.",
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
      {offered.map((each) => (
        // One button that changes its word, and keeps the focus.
        <Button key={each === "drain" ? "drain" : "cordon"} size="compact-xs" variant="default" onClick={() => setAction(each)}>
          {each[0]?.toUpperCase()}
          {each.slice(1)}
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
        <TextInput
          label="Reason"
          description="Others read it where they wait for this GPU"
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
          data-autofocus
          mb="sm"
        />
        {asksForStop && action === "uncordon" && (
          <Checkbox
            label="I have seen that nothing runs there any more"
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
          <Button type="submit" loading={change.isPending}>
            {action}
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
