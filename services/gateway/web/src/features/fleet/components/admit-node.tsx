import { Button, Group } from "@mantine/core";
import { useState } from "react";
import { Dialog } from "@/components/dialog";
import { Failure } from "@/components/page";
import { useIsAdmin } from "@/lib/api/get-me";
import { useAdmitNode } from "../api/admit-node";

/** For admins; others see no button that would be refused. */
export function AdmitNode({ nodeId }: { nodeId: string }) {
  const [isAsking, setAsking] = useState(false);
  const admit = useAdmitNode();
  if (!useIsAdmin()) return null;
  const close = () => setAsking(false);
  return (
    <>
      <Button size="compact-xs" onClick={() => setAsking(true)}>
        Admit
      </Button>
      {isAsking && (
        <Dialog onClose={close} title={`Admit node ${nodeId}?`}>
          <p>Its GPUs can be granted from then on. Cordon takes them back out of service.</p>
          {admit.error && <Failure error={admit.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={close} data-autofocus>
              Cancel
            </Button>
            <Button
              loading={admit.isPending}
              onClick={() => admit.mutate(nodeId, { onSuccess: close })}
            >
              Admit
            </Button>
          </Group>
        </Dialog>
      )}
    </>
  );
}
