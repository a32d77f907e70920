import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import type { GpuRequest, ReservationView } from "@schemas/messages";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Failure } from "@/components/page";
import { holderOf } from "@/domain/holder";
import { requestText } from "@/domain/request-words";
import { useReplaceRequest } from "../api/replace-request";

interface ReplaceDialogProps {
  waiting: ReservationView;
  request: GpuRequest;
  onClose: () => void;
}

/** Asks before a request that waits is withdrawn for a smaller one. */
export function ReplaceDialog({ waiting, request, onClose }: ReplaceDialogProps) {
  const replace = useReplaceRequest();
  const name = holderOf(waiting.holder).name || waiting.reservation_id;
  return (
    <Dialog onClose={onClose} title={t`Request something else for ${name}?`}>
      <p>
        <Trans>
          The request for {requestText(waiting.request)} is withdrawn, with its place in the queue.
          In its place <strong>{requestText(request)}</strong> is requested for {name}; where it can
          be granted, GPUs are reserved at once.
        </Trans>
      </p>
      {replace.error && <Failure error={replace.error} />}
      <DialogActions onCancel={onClose} cancelWord={t`Keep it`} focusesCancel>
        <Button
          loading={replace.isPending}
          onClick={() => replace.mutate({ waiting, request }, { onSuccess: onClose })}
        >
          <Trans>Request that instead</Trans>
        </Button>
      </DialogActions>
    </Dialog>
  );
}
