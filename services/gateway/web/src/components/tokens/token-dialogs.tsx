import { Button, Group, NumberInput, Select, TagsInput, TextInput } from "@mantine/core";
import { useState } from "react";
import type { MadeToken, Role, TokenView } from "@schemas/messages";
import { Dialog } from "@/components/dialog";
import { Failure } from "@/components/page";
import { ownNamespaces, useMe } from "@/lib/api/get-me";
import { useCreateToken } from "@/lib/api/create-token";
import { useRevokeToken } from "@/lib/api/revoke-token";

const ROLES: { value: Role; label: string }[] = [
  { value: "viewer", label: "viewer: read only" },
  { value: "submitter", label: "submitter: can also run tasks and reserve GPUs" },
  { value: "owner", label: "owner: can also set its limit, tokens and members" },
  { value: "admin", label: "admin: full access to all namespaces" },
];
const DAY_SECONDS = 86_400;

interface CreateTokenDialogProps {
  isPersonal: boolean;
  onClose: () => void;
  onMade: (made: MadeToken) => void;
}

export function CreateTokenDialog({ isPersonal, onClose, onMade }: CreateTokenDialogProps) {
  const create = useCreateToken();
  const [name, setName] = useState("");
  const me = useMe();
  const roles = ROLES.slice(0, 1 + ROLES.findIndex(({ value }) => value === (me?.role ?? "admin")));
  const [role, setRole] = useState<Role>(me?.role === "viewer" ? "viewer" : "submitter");
  const [namespaces, setNamespaces] = useState(
    me ? (isPersonal ? me.namespaces : ownNamespaces(me)) : ["default"],
  );
  const [days, setDays] = useState<number | string>("");
  return (
    <Dialog onClose={onClose} title="New token">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const expires_in_seconds = typeof days === "number" ? days * DAY_SECONDS : null;
          create.mutate(
            { name, role, namespaces, expires_in_seconds, personal: isPersonal },
            { onSuccess: onMade },
          );
        }}
      >
        <TextInput
          label="Name"
          description="Shown in the audit log"
          required
          value={name}
          onChange={(event) => setName(event.currentTarget.value.trim())}
          data-autofocus
          mb="sm"
        />
        <Select
          label="Role"
          data={roles}
          value={role}
          allowDeselect={false}
          onChange={(value) => value && setRole(value)}
          mb="sm"
        />
        <TagsInput
          label="Namespaces"
          description="The first one is the default"
          value={namespaces}
          onChange={setNamespaces}
          mb="sm"
        />
        <NumberInput
          label="Expires after"
          description="Never, if empty"
          suffix=" days"
          min={1}
          allowDecimal={false}
          value={days}
          onChange={setDays}
          mb="sm"
        />
        {create.error && <Failure error={create.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button
            type="submit"
            loading={create.isPending}
            disabled={!name || namespaces.length === 0}
          >
            Create
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}

export function RevokeTokenDialog({ token, onClose }: { token: TokenView; onClose: () => void }) {
  const revoke = useRevokeToken();
  return (
    <Dialog onClose={onClose} title={`Revoke ${token.name}?`}>
      <p>The token stops working at once and for good; its open streams end within a second.</p>
      {revoke.error && <Failure error={revoke.error} />}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose} data-autofocus>
          Cancel
        </Button>
        <Button
          color="red"
          loading={revoke.isPending}
          onClick={() => revoke.mutate(token.token_id, { onSuccess: onClose })}
        >
          Revoke
        </Button>
      </Group>
    </Dialog>
  );
}
