import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { Suspense, useState } from "react";
import { useIsAdmin } from "@/lib/api/get-me";
import { InviteDialog } from "./late-dialogs";

/** For admins; others see no button that would be refused. */
export function InviteServer() {
  const [isOpen, setOpen] = useState(false);
  if (!useIsAdmin()) return null;
  return (
    <>
      <Button size="xs" variant="default" onClick={() => setOpen(true)}>
        <Trans>Add a server</Trans>
      </Button>
      {isOpen && (
        <Suspense>
          <InviteDialog onClose={() => setOpen(false)} />
        </Suspense>
      )}
    </>
  );
}
