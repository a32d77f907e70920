import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { Suspense, useState } from "react";
import { useIsAdmin } from "@/lib/api/get-me";
import { AdmitDialog } from "./late-dialogs";

/** For admins; others see no button that would be refused. */
export function AdmitNode({ nodeId }: { nodeId: string }) {
  const [isAsking, setAsking] = useState(false);
  if (!useIsAdmin()) return null;
  return (
    <>
      <Button size="compact-xs" onClick={() => setAsking(true)}>
        <Trans>Admit</Trans>
      </Button>
      {isAsking && (
        <Suspense>
          <AdmitDialog nodeId={nodeId} onClose={() => setAsking(false)} />
        </Suspense>
      )}
    </>
  );
}
