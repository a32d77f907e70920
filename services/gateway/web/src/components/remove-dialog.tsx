import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { Dialog } from "./dialog";
import { DialogActions } from "./dialog-actions";
import { Failure } from "./page";

interface RemoveDialogProps {
  title: string;
  /** What ends with it. */
  children: ReactNode;
  /** Beside "Remove", where more comes with it. */
  word?: string | undefined;
  removal: { error: Error | null; isPending: boolean };
  onRemove: () => void;
  onClose: () => void;
}

/** Asks before something is removed, and says why it could not be. */
export function RemoveDialog(props: RemoveDialogProps) {
  const { title, children, word, removal, onRemove, onClose } = props;
  return (
    <Dialog onClose={onClose} title={title}>
      <p>{children}</p>
      {removal.error && <Failure error={removal.error} />}
      <DialogActions onCancel={onClose} focusesCancel>
        <Button color="red" loading={removal.isPending} onClick={onRemove}>
          {word ?? <Trans>Remove</Trans>}
        </Button>
      </DialogActions>
    </Dialog>
  );
}
