import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Group, TextInput } from "@mantine/core";
import { useState } from "react";
import type { NodeInvitation } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Failure } from "@/components/page";
import { fullMoment } from "@/lib/time";
import { useInviteNode } from "@/lib/api/invite-node";

const LOOPBACK = /^(localhost|127\.[\d.]+|\[::1\])$/;

/** Asks for the name of a new server, and shows the line that it joins by. */
export function InviteDialog({ onClose }: { onClose: () => void }) {
  const invite = useInviteNode();
  if (invite.data) {
    return (
      <Dialog
        onClose={onClose}
        title={t`Add server ${invite.data.node_id}`}
        size="lg"
        closeOnClickOutside={false}
      >
        <Instructions invitation={invite.data} />
        <Group justify="flex-end" mt="sm">
          <Button onClick={onClose}>
            <Trans>Done</Trans>
          </Button>
        </Group>
      </Dialog>
    );
  }
  return (
    <Dialog onClose={onClose} title={t`Add a server`}>
      <NameForm
        onName={(nodeId) => invite.mutate(nodeId)}
        onCancel={onClose}
        error={invite.error}
        isPending={invite.isPending}
      />
    </Dialog>
  );
}

interface NameFormProps {
  onName: (nodeId: string) => void;
  onCancel: () => void;
  error: Error | null;
  isPending: boolean;
}

function NameForm({ onName, onCancel, error, isPending }: NameFormProps) {
  const [nodeId, setNodeId] = useState("");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onName(nodeId);
      }}
    >
      <TextInput
        label={t`Name of the server`}
        description={t`Letters, digits, - and _. The fleet shows it as the name of the node`}
        placeholder={t`gpu-01`}
        required
        value={nodeId}
        onChange={(event) => setNodeId(event.currentTarget.value.trim())}
        data-autofocus
        mb="sm"
      />
      {error && <Failure error={error} />}
      <DialogActions onCancel={onCancel}>
        <Button type="submit" loading={isPending} disabled={!nodeId}>
          <Trans>Make the command</Trans>
        </Button>
      </DialogActions>
    </form>
  );
}

function Instructions({ invitation }: { invitation: NodeInvitation }) {
  return (
    <>
      <p>
        <Trans>
          Run this command on {invitation.node_id} before {fullMoment(invitation.ends_at)}. It
          installs GPU Steward, joins and starts the agent. It works once; show it to nobody else.
        </Trans>
      </p>
      <CopyText text={invitation.command} label={t`the command`} />
      {LOOPBACK.test(window.location.hostname) && (
        <p role="note">
          <Trans>
            The command names {window.location.origin}, which only this machine can reach. Put an
            address of this machine in its place, and start the platform with{" "}
            <code>gpusteward up --host ADDRESS --nats-listen ADDRESS:4222</code>.
          </Trans>
        </p>
      )}
      <p className="dim">
        <Trans>The server then appears in the fleet, waiting for admission. Admit it there.</Trans>
      </p>
    </>
  );
}
