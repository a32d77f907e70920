import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { useState } from "react";
import type { NodeView } from "@schemas/messages";
import { useIsAdmin } from "@/lib/api/get-me";
import { AdmitNode } from "./admit-node";
import { LabelDialog } from "./label-node";
import { RemoveDialog } from "./remove-node";
import { ServiceActions } from "./service-actions";

interface NodeActionsProps {
  node: NodeView;
  onRemoved?: () => void;
  /** A change that the address names is asked about at once. */
  isAsked?: boolean;
}

/** All that can be done with a node, for admins. */
export function NodeActions({ node, onRemoved, isAsked }: NodeActionsProps) {
  const [opened, setOpened] = useState<"labels" | "remove" | null>(null);
  const isAdmin = useIsAdmin();
  const { node_id: nodeId } = node;
  if (!isAdmin) return null;
  const close = () => setOpened(null);
  return (
    <>
      {!node.admitted && <AdmitNode nodeId={nodeId} />}
      <ServiceActions nodeId={nodeId} isCordoned={node.cordon !== null} isAsked={isAsked} />
      <Button size="compact-xs" variant="default" onClick={() => setOpened("labels")}>
        <Trans>Labels</Trans>
      </Button>
      <Button size="compact-xs" variant="default" color="red" onClick={() => setOpened("remove")}>
        <Trans>Remove</Trans>
      </Button>
      {opened === "labels" && <LabelDialog node={node} onClose={close} />}
      {opened === "remove" && (
        <RemoveDialog nodeId={nodeId} onClose={close} onRemoved={onRemoved} />
      )}
    </>
  );
}
