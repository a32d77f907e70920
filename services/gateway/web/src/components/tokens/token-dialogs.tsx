import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, NumberInput, Select, TagsInput, TextInput } from "@mantine/core";
import { useState } from "react";
import type { MadeToken, Role, TokenView } from "@schemas/messages";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Failure } from "@/components/page";
import { ownNamespaces, useMe } from "@/lib/api/get-me";
import { useCreateToken } from "@/lib/api/create-token";
import { useRevokeToken } from "@/lib/api/revoke-token";

const ROLES: { value: Role; label: string }[] = [
  { value: "viewer", label: t`viewer: read only` },
  { value: "submitter", label: t`submitter: can also run tasks and reserve GPUs` },
  { value: "owner", label: t`owner: can also set its limit, tokens and members` },
  { value: "admin", label: t`admin: full access to all namespaces` },
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
    <Dialog onClose={onClose} title={t`Create a token`}>
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
          label={t`Name`}
          description={t`Whose it is, or what for: the audit log shows it for every change`}
          required
          value={name}
          onChange={(event) => setName(event.currentTarget.value.trim())}
          data-autofocus
          mb="sm"
        />
        <Select
          label={t`Role`}
          data={roles}
          value={role}
          allowDeselect={false}
          onChange={(value) => value && setRole(value)}
          mb="sm"
        />
        <TagsInput
          label={t`Namespaces`}
          description={t`The first one is the default`}
          value={namespaces}
          onChange={setNamespaces}
          mb="sm"
        />
        <NumberInput
          label={t`Expires after`}
          description={t`Leave it empty for a token that does not expire`}
          suffix={t` days`}
          min={1}
          allowDecimal={false}
          value={days}
          onChange={setDays}
          mb="sm"
        />
        {create.error && <Failure error={create.error} />}
        <DialogActions onCancel={onClose}>
          <Button
            type="submit"
            loading={create.isPending}
            disabled={!name || namespaces.length === 0}
          >
            <Trans>Create token</Trans>
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}

export function RevokeTokenDialog({ token, onClose }: { token: TokenView; onClose: () => void }) {
  const revoke = useRevokeToken();
  return (
    <Dialog onClose={onClose} title={t`Revoke ${token.name}?`}>
      <p>
        <Trans>
          The token stops working at once and for good; its open streams end within a second.
        </Trans>
      </p>
      {revoke.error && <Failure error={revoke.error} />}
      <DialogActions onCancel={onClose} focusesCancel>
        <Button
          color="red"
          loading={revoke.isPending}
          onClick={() => revoke.mutate(token.token_id, { onSuccess: onClose })}
        >
          <Trans>Revoke</Trans>
        </Button>
      </DialogActions>
    </Dialog>
  );
}
