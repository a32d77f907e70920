import { Button, Group, NumberInput, Select, TagsInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { MadeToken, Role, TokenView } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { DataTable, type Column } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { Failure, Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { duration, moment, secondsSince, useNow } from "@/lib/time";
import { number, UNKNOWN } from "@/lib/units";
import { useCreateToken } from "../api/create-token";
import { tokensOptions } from "../api/get-tokens";
import { useRevokeToken } from "../api/revoke-token";

export function Tokens() {
  const tokens = useQuery(tokensOptions);
  const now = useNow();
  const [isMaking, setMaking] = useState(false);
  const [made, setMade] = useState<MadeToken | null>(null);
  const [revoked, setRevoked] = useState<TokenView | null>(null);
  const columns: Column<TokenView>[] = [
    { name: "Name", sortBy: (token) => token.name, cell: (token) => token.name },
    { name: "Role", sortBy: (token) => token.role, cell: (token) => token.role },
    {
      name: "Namespaces",
      cell: (token) => (token.role === "admin" ? "all" : token.namespaces.join(", ")),
    },
    { name: "State", cell: (token) => <TokenState token={token} nowMs={now} /> },
    {
      name: "Last used",
      sortBy: (token) => token.last_used_at,
      cell: (token) => ago(token.last_used_at, now),
    },
    {
      name: "Made",
      sortBy: (token) => token.created_at,
      cell: (token) => moment(token.created_at, now),
    },
    { name: "By", cell: (token) => (token.from_file ? "platform file" : token.created_by) },
    {
      name: "Limit",
      unit: "requests/s",
      isNumber: true,
      cell: (token) => number(token.requests_per_second),
    },
    {
      name: "",
      cell: (token) =>
        !token.revoked_at && (
          <Button
            size="compact-xs"
            variant="default"
            aria-label={`Revoke ${token.name}`}
            onClick={() => setRevoked(token)}
          >
            Revoke
          </Button>
        ),
    },
  ];
  return (
    <>
      <Group mb="sm">
        <Button size="xs" onClick={() => setMaking(true)}>
          New token
        </Button>
      </Group>
      <Loaded query={tokens}>
        {(all) =>
          all.length === 0 ? (
            <p className="dim">
              No tokens yet. Until one exists, anyone who reaches the gateway from this host is an
              admin.
            </p>
          ) : (
            <DataTable
              label="Tokens"
              columns={columns}
              rows={all}
              rowKey={(token) => token.token_id}
            />
          )
        }
      </Loaded>
      {isMaking && (
        <CreateDialog
          onClose={() => setMaking(false)}
          onMade={(token) => {
            setMaking(false);
            setMade(token);
          }}
        />
      )}
      {made && (
        <Dialog
          onClose={() => setMade(null)}
          title={`Token ${made.token.name}`}
          closeOnClickOutside={false}
        >
          <p>Copy it now: it is shown only once.</p>
          <CopyText text={made.secret} label="the token" />
          <Group justify="flex-end" mt="sm">
            <Button onClick={() => setMade(null)}>Done</Button>
          </Group>
        </Dialog>
      )}
      {revoked && <RevokeDialog token={revoked} onClose={() => setRevoked(null)} />}
    </>
  );
}

function TokenState({ token, nowMs }: { token: TokenView; nowMs: number }) {
  if (token.revoked_at)
    return <StateMark kind="unknown" word={`revoked ${moment(token.revoked_at, nowMs)}`} />;
  const secondsOver = secondsSince(token.expires_at, nowMs);
  if (secondsOver === null) return <StateMark kind="ok" word="valid" />;
  if (secondsOver >= 0) return <StateMark kind="unknown" word="expired" />;
  return (
    <StateMark
      kind="ok"
      word={`for ${duration(Math.round(-secondsOver))}`}
      title={moment(token.expires_at, nowMs)}
    />
  );
}

function ago(at: string | null, nowMs: number): string {
  const seconds = secondsSince(at, nowMs);
  return seconds === null ? UNKNOWN : `${duration(Math.max(0, Math.round(seconds)))} ago`;
}

const ROLES: { value: Role; label: string }[] = [
  { value: "viewer", label: "viewer: read only" },
  { value: "submitter", label: "submitter: can also run tasks and reserve GPUs" },
  { value: "admin", label: "admin: full access to all namespaces" },
];
const DAY_SECONDS = 86_400;

interface CreateDialogProps {
  onClose: () => void;
  onMade: (made: MadeToken) => void;
}

function CreateDialog({ onClose, onMade }: CreateDialogProps) {
  const create = useCreateToken();
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("submitter");
  const [namespaces, setNamespaces] = useState(["default"]);
  const [days, setDays] = useState<number | string>("");
  return (
    <Dialog onClose={onClose} title="New token">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const expires_in_seconds = typeof days === "number" ? days * DAY_SECONDS : null;
          create.mutate({ name, role, namespaces, expires_in_seconds }, { onSuccess: onMade });
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
          data={ROLES}
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

function RevokeDialog({ token, onClose }: { token: TokenView; onClose: () => void }) {
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
