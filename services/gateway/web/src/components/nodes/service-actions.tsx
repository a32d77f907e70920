import { Button } from "@mantine/core";
import { Suspense, useState } from "react";
import { useIsAdmin } from "@/lib/api/get-me";
import { useUrlState } from "@/lib/url-state";
import type { ServiceChange } from "@/lib/api/set-service";
import { ServiceDialog } from "./late-dialogs";
import { SERVICE_WORDS } from "./service-words";

interface ServiceActionsProps {
  nodeId: string;
  /** Without one the whole node is meant. */
  deviceUuid?: string;
  isCordoned: boolean;
  isQuarantined?: boolean;
  /** A change that the address names is asked about at once. */
  isAsked?: boolean;
}

/** For admins; others see no button that would be refused. */
export function ServiceActions(props: ServiceActionsProps) {
  const { nodeId, deviceUuid, isCordoned, isQuarantined = false } = props;
  const [command, setCommand] = useUrlState("do", "");
  const [chosen, setAction] = useState<ServiceChange["action"] | null>(null);
  if (!useIsAdmin()) return null;
  const offered = [
    isCordoned || isQuarantined ? "uncordon" : "cordon",
    ...(deviceUuid ? [] : ["drain"]),
  ] as ServiceChange["action"][];
  // A command of the palette asks by the address, of the one node whose page it opens.
  const action =
    chosen ?? (props.isAsked ? (offered.find((candidate) => candidate === command) ?? null) : null);
  const close = () => {
    setAction(null);
    if (command) setCommand("");
  };
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
          {SERVICE_WORDS[action]}
        </Button>
      ))}
      {action && (
        <Suspense>
          <ServiceDialog
            action={action}
            nodeId={nodeId}
            deviceUuid={deviceUuid ?? null}
            asksForStop={isQuarantined}
            onClose={close}
          />
        </Suspense>
      )}
    </>
  );
}
