import { Button, Group, PasswordInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { SecretView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { Empty, Failure, Loaded } from "@/components/page";
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
    { name: "Secret", sortBy: (secret) => secret.name, cell: (secret) => secret.name },
    { name: "Namespace", sortBy: (secret) => secret.namespace, cell: (secret) => secret.namespace },
    {
      name: "Set at",
      sortBy: (secret) => secret.set_at,
      cell: (secret) => (
        <time dateTime={secret.set_at} title={fullMoment(secret.set_at)}>
          {moment(secret.set_at, now)}
        </time>
      ),
    },
    { name: "By", cell: (secret) => secret.set_by || UNKNOWN },
    {
      name: "Used by",
      title: "Unfinished tasks that name it",
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
                  aria-label={`Replace ${secret.name}`}
                  onClick={() => setEdited(secret)}
                >
                  Replace
                </Button>
                <Button
                  size="compact-xs"
                  variant="default"
                  aria-label={`Remove ${secret.name}`}
                  onClick={() => setRemoved(secret)}
                >
                  Remove
                </Button>
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
            Set a secret
          </Button>
        </Group>
      )}
      <Loaded query={secrets}>
        {(all) =>
          all.length === 0 ? (
            <Empty title="No secrets yet">
              A task file names those of its namespace: <code>secrets: [HF_TOKEN]</code>.
            </Empty>
          ) : (
            <DataTable
              label="Secrets"
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
      {removed && <RemoveDialog secret={removed} onClose={() => setRemoved(null)} />}
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
    <Dialog onClose={onClose} title={initial ? `Replace ${initial.name}` : "Set a secret"}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          change.mutate({ namespace, name, value }, { onSuccess: onClose });
        }}
      >
        {!initial && (
          <>
            <TextInput
              label="Namespace"
              required
              value={namespace}
              onChange={(event) => setNamespace(event.currentTarget.value.trim())}
              mb="sm"
            />
            <TextInput
              label="Name"
              description="The variable that engines get, such as HF_TOKEN"
              required
              value={name}
              onChange={(event) => setName(event.currentTarget.value.trim())}
              data-autofocus
              mb="sm"
            />
          </>
        )}
        <PasswordInput
          label="Value"
          description="Not shown again"
          required
          autoComplete="off"
          value={value}
          onChange={(event) => setValue(event.currentTarget.value)}
          mb="sm"
        />
        {change.error && <Failure error={change.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={change.isPending} disabled={!namespace || !name || !value}>
            Set
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}

function RemoveDialog({ secret, onClose }: { secret: SecretView; onClose: () => void }) {
  const remove = useRemoveSecret();
  return (
    <Dialog onClose={onClose} title={`Remove ${secret.name}?`}>
      <p>Engines that run keep it. Tasks that name it start nothing more.</p>
      {remove.error && <Failure error={remove.error} />}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose} data-autofocus>
          Cancel
        </Button>
        <Button
          color="red"
          loading={remove.isPending}
          onClick={() => remove.mutate(secret, { onSuccess: onClose })}
        >
          Remove
        </Button>
      </Group>
    </Dialog>
  );
}
