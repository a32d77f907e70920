import { Trans } from "@lingui/react/macro";
import { Button, Group } from "@mantine/core";
import type { ReactNode } from "react";

interface DialogActionsProps {
  onCancel: () => void;
  /** What leaving it as it is means here, where that is not Cancel. */
  cancelWord?: ReactNode;
  /** Where the change cannot be undone, Enter leaves it. */
  focusesCancel?: boolean;
  /** The button of its one change. */
  children: ReactNode;
}

/** The last row of a dialog: leave it as it is, or change it. */
export function DialogActions({
  onCancel,
  cancelWord = <Trans>Cancel</Trans>,
  focusesCancel,
  children,
}: DialogActionsProps) {
  return (
    <Group justify="flex-end">
      <Button variant="default" onClick={onCancel} data-autofocus={focusesCancel || undefined}>
        {cancelWord}
      </Button>
      {children}
    </Group>
  );
}
