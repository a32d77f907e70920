import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";

/** Of a row of a table; the caller asks before anything is gone. */
export function RemoveButton({ of, onClick }: { of: string; onClick: () => void }) {
  return (
    <Button size="compact-xs" variant="default" aria-label={t`Remove ${of}`} onClick={onClick}>
      <Trans>Remove</Trans>
    </Button>
  );
}
