import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Failure } from "@/components/page";
import { useAdmitNode } from "@/lib/api/admit-node";

/** Asks before GPUs of a new node can be granted. */
export function AdmitDialog({ nodeId, onClose }: { nodeId: string; onClose: () => void }) {
  const admit = useAdmitNode();
  return (
    <Dialog onClose={onClose} title={t`Admit node ${nodeId}?`}>
      <p>
        <Trans>Its GPUs can be granted from then on. Cordon takes them back out of service.</Trans>
      </p>
      {admit.error && <Failure error={admit.error} />}
      <DialogActions onCancel={onClose} focusesCancel>
        <Button
          loading={admit.isPending}
          onClick={() => admit.mutate(nodeId, { onSuccess: onClose })}
        >
          <Trans>Admit</Trans>
        </Button>
      </DialogActions>
    </Dialog>
  );
}
