import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Group } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { useState } from "react";
import type { MadeToken, TokenView } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { DataTable, type Column } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { When } from "@/components/when";
import { fullMoment, moment, roughly, secondsSince, useNow } from "@/lib/time";
import { number } from "@/lib/units";
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
      name: t`Name`,
      sortBy: (token) => token.name,
      cell: (token) => (token.is_session ? t`${token.name} (session)` : token.name),
    },
    { name: t`Role`, sortBy: (token) => token.role, cell: (token) => token.role },
    {
      name: t`Namespaces`,
      cell: (token) => (token.role === "admin" ? t`all` : token.namespaces.join(", ")),
    },
    { name: t`State`, cell: (token) => <TokenState token={token} nowMs={now} /> },
    {
      name: t`Last used`,
      sortBy: (token) => token.last_used_at,
      cell: (token) => <When at={token.last_used_at} isRelative />,
    },
    {
      name: t`Created`,
      sortBy: (token) => token.created_at,
      cell: (token) => <When at={token.created_at} />,
    },
    {
      name: t`Created by`,
      cell: (token) => (token.from_file ? t`platform file` : token.created_by),
    },
    {
      name: t`Limit`,
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
            color="red"
            c="var(--gs-bad)"
            aria-label={t`Revoke ${token.name}`}
            onClick={() => setRevoked(token)}
          >
            <Trans>Revoke</Trans>
          </Button>
        ),
    },
  ];
  return (
    <>
      {canCreate && (
        <Group mb="sm">
          <Button size="xs" onClick={() => setMaking(true)}>
            <Trans>Create token</Trans>
          </Button>
        </Group>
      )}
      <Loaded query={tokens}>
        {(all) =>
          all.length === 0 ? (
            <p className="dim">
              <Trans>
                No tokens yet. Until one exists, anyone who reaches the gateway from this host is an
                admin.
              </Trans>
            </p>
          ) : (
            <DataTable
              label={t`Tokens`}
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
          title={t`Token ${made.token.name}`}
          closeOnClickOutside={false}
        >
          <p>
            <Trans>Copy it now: it is shown only once.</Trans>
          </p>
          <CopyText text={made.secret} label={t`the token`} />
          <Group justify="flex-end" mt="sm">
            <Button onClick={() => setMade(null)}>
              <Trans>Done</Trans>
            </Button>
          </Group>
        </Dialog>
      )}
      {revoked && <RevokeTokenDialog token={revoked} onClose={() => setRevoked(null)} />}
    </>
  );
}

function TokenState({ token, nowMs }: { token: TokenView; nowMs: number }) {
  if (token.revoked_at)
    return <StateMark kind="unknown" word={t`revoked ${moment(token.revoked_at, nowMs)}`} />;
  const secondsOver = secondsSince(token.expires_at, nowMs);
  if (secondsOver === null) return <StateMark kind="ok" word={t`valid, no expiry`} />;
  if (secondsOver >= 0) return <StateMark kind="unknown" word={t`expired`} />;
  const time = roughly(Math.round(-secondsOver));
  return (
    <StateMark
      kind="ok"
      word={t`valid, expires in ${time}`}
      title={fullMoment(token.expires_at ?? "")}
    />
  );
}
