import { Button, Group } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { useState } from "react";
import type { MadeToken, TokenView } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { DataTable, type Column } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { duration, moment, secondsSince, useNow } from "@/lib/time";
import { number, UNKNOWN } from "@/lib/units";
import { CreateTokenDialog, RevokeTokenDialog } from "./token-dialogs";

interface TokenTableProps {
  tokens: UseQueryResult<TokenView[]>;
  /** New ones act as who makes them. */
  isPersonal?: boolean;
  canCreate?: boolean;
}

/** Tokens, and what makes and ends them. */
export function TokenTable({ tokens, isPersonal = false, canCreate = true }: TokenTableProps) {
  const now = useNow();
  const [isMaking, setMaking] = useState(false);
  const [made, setMade] = useState<MadeToken | null>(null);
  const [revoked, setRevoked] = useState<TokenView | null>(null);
  const columns: Column<TokenView>[] = [
    {
      name: "Name",
      sortBy: (token) => token.name,
      cell: (token) => (token.is_session ? `${token.name} (session)` : token.name),
    },
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
      {canCreate && (
        <Group mb="sm">
          <Button size="xs" onClick={() => setMaking(true)}>
            New token
          </Button>
        </Group>
      )}
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
        <CreateTokenDialog
          isPersonal={isPersonal}
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
      {revoked && <RevokeTokenDialog token={revoked} onClose={() => setRevoked(null)} />}
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
