import { Button, Group, TextInput } from "@mantine/core";
import { useState } from "react";
import type { NodeInvitation } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { Dialog } from "@/components/dialog";
import { Failure } from "@/components/page";
import { useIsAdmin } from "@/lib/api/get-me";
import { fullMoment } from "@/lib/time";
import { useInviteNode } from "../api/invite-node";

const LOOPBACK = /^(localhost|127\.[\d.]+|\[::1\])$/;

/** For admins; others see no button that would be refused. */
export function InviteServer() {
  const [isOpen, setOpen] = useState(false);
  if (!useIsAdmin()) return null;
  return (
    <>
      <Button size="xs" variant="default" onClick={() => setOpen(true)}>
        Add a server
      </Button>
      {isOpen && <InviteDialog onClose={() => setOpen(false)} />}
    </>
  );
}

function InviteDialog({ onClose }: { onClose: () => void }) {
  const invite = useInviteNode();
  if (invite.data) {
    return (
      <Dialog
        onClose={onClose}
        title={`Add server ${invite.data.node_id}`}
        size="lg"
        closeOnClickOutside={false}
      >
        <Instructions invitation={invite.data} />
        <Group justify="flex-end" mt="sm">
          <Button onClick={onClose}>Done</Button>
        </Group>
      </Dialog>
    );
  }
  return (
    <Dialog onClose={onClose} title="Add a server">
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
        label="Name of the server"
        description="Letters, digits, - and _. The fleet shows it as the name of the node"
        placeholder="gpu-01"
        required
        value={nodeId}
        onChange={(event) => setNodeId(event.currentTarget.value.trim())}
        data-autofocus
        mb="sm"
      />
      {error && <Failure error={error} />}
      <Group justify="flex-end">
        <Button variant="default" onClick={onCancel}>
          Cancel
        </Button>
        <Button type="submit" loading={isPending} disabled={!nodeId}>
          Make the command
        </Button>
      </Group>
    </form>
  );
}

function Instructions({ invitation }: { invitation: NodeInvitation }) {
  return (
    <>
      <p>
        Run this command on {invitation.node_id} before {fullMoment(invitation.ends_at)}. It
        installs GPU Steward, joins and starts the agent. It works once; show it to nobody else.
      </p>
      <CopyText text={invitation.command} label="the command" />
      {LOOPBACK.test(window.location.hostname) && (
        <p role="note">
          The command names {window.location.origin}, which only this machine can reach. Put an
          address of this machine in its place, and start the platform with{" "}
          <code>gpusteward up --host ADDRESS --nats-listen ADDRESS:4222</code>.
        </p>
      )}
      <p className="dim">
        The server then appears in the fleet, waiting for admission. Admit it there.
      </p>
    </>
  );
}
