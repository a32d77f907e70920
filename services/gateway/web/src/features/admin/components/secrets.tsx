import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Group, PasswordInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { SecretView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Empty, Failure, Loaded } from "@/components/page";
import { RemoveButton } from "@/components/remove-button";
import { RemoveDialog } from "@/components/remove-dialog";
import { useMayChange, useMe } from "@/lib/api/get-me";
import { fullMoment, moment, useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { secretsOptions } from "../api/get-secrets";
import { useRemoveSecret } from "../api/remove-secret";
import { useSetSecret } from "../api/set-secret";

/** Names of what engines get as environment; no value is ever shown. */
export function Secrets() {
  const secrets = useQuery(secretsOptions);
  const me = useMe();
  const now = useNow();
  const [edited, setEdited] = useState<SecretView | "new" | null>(null);
  const [removed, setRemoved] = useState<SecretView | null>(null);
  const mayChange = useMayChange();
  const columns: Column<SecretView>[] = [
    { name: t`Secret`, sortBy: (secret) => secret.name, cell: (secret) => secret.name },
    {
      name: t`Namespace`,
      sortBy: (secret) => secret.namespace,
      cell: (secret) => secret.namespace,
    },
    {
      name: t`Set at`,
      sortBy: (secret) => secret.set_at,
      cell: (secret) => (
        <time dateTime={secret.set_at} title={fullMoment(secret.set_at)}>
          {moment(secret.set_at, now)}
        </time>
      ),
    },
    { name: t`By`, cell: (secret) => secret.set_by || UNKNOWN },
    {
      name: t`Used by`,
      title: t`Unfinished tasks that name it`,
      cell: (secret) => secret.used_by.join(", ") || UNKNOWN,
    },
    ...(mayChange
      ? [
          {
            name: "",
            cell: (secret: SecretView) => (
              <Group gap="xs" wrap="nowrap">
                <Button
                  size="compact-xs"
                  variant="default"
                  aria-label={t`Replace ${secret.name}`}
                  onClick={() => setEdited(secret)}
                >
                  <Trans>Replace</Trans>
                </Button>
                <RemoveButton of={secret.name} onClick={() => setRemoved(secret)} />
              </Group>
            ),
          },
        ]
      : []),
  ];
  return (
    <>
      {mayChange && (
        <Group mb="sm">
          <Button size="xs" variant="default" onClick={() => setEdited("new")}>
            <Trans>Set a secret</Trans>
          </Button>
        </Group>
      )}
      <Loaded query={secrets}>
        {(all) =>
          all.length === 0 ? (
            <Empty title={t`No secrets yet`}>
              <Trans>
                A task file names those of its namespace: <code>secrets: [HF_TOKEN]</code>.
              </Trans>
            </Empty>
          ) : (
            <DataTable
              label={t`Secrets`}
              columns={columns}
              rows={all}
              rowKey={(secret) => `${secret.namespace}/${secret.name}`}
            />
          )
        }
      </Loaded>
      {edited && (
        <SecretDialog
          initial={edited === "new" ? null : edited}
          namespace={me?.namespaces[0] ?? "default"}
          onClose={() => setEdited(null)}
        />
      )}
      {removed && <RemoveSecret secret={removed} onClose={() => setRemoved(null)} />}
    </>
  );
}

interface SecretDialogProps {
  initial: SecretView | null;
  namespace: string;
  onClose: () => void;
}

function SecretDialog({ initial, namespace: usual, onClose }: SecretDialogProps) {
  const change = useSetSecret();
  const [namespace, setNamespace] = useState(initial?.namespace ?? usual);
  const [name, setName] = useState(initial?.name ?? "");
  const [value, setValue] = useState("");
  return (
    <Dialog onClose={onClose} title={initial ? t`Replace ${initial.name}` : t`Set a secret`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          change.mutate({ namespace, name, value }, { onSuccess: onClose });
        }}
      >
        {!initial && (
          <>
            <TextInput
              label={t`Namespace`}
              required
              value={namespace}
              onChange={(event) => setNamespace(event.currentTarget.value.trim())}
              mb="sm"
            />
            <TextInput
              label={t`Name`}
              description={t`The variable that engines get, such as HF_TOKEN`}
              required
              value={name}
              onChange={(event) => setName(event.currentTarget.value.trim())}
              data-autofocus
              mb="sm"
            />
          </>
        )}
        <PasswordInput
          label={t`Value`}
          description={t`Not shown again`}
          required
          autoComplete="off"
          value={value}
          onChange={(event) => setValue(event.currentTarget.value)}
          mb="sm"
        />
        {change.error && <Failure error={change.error} />}
        <DialogActions onCancel={onClose}>
          <Button type="submit" loading={change.isPending} disabled={!namespace || !name || !value}>
            <Trans>Set</Trans>
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}

function RemoveSecret({ secret, onClose }: { secret: SecretView; onClose: () => void }) {
  const remove = useRemoveSecret();
  return (
    <RemoveDialog
      title={t`Remove ${secret.name}?`}
      removal={remove}
      onRemove={() => remove.mutate(secret, { onSuccess: onClose })}
      onClose={onClose}
    >
      <Trans>Engines that run keep it. Tasks that name it start nothing more.</Trans>
    </RemoveDialog>
  );
}
