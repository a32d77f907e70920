import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Group, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { MemberKind, MemberView, Me, Role } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Empty, Failure, Loaded } from "@/components/page";
import { RemoveButton } from "@/components/remove-button";
import { RemoveDialog } from "@/components/remove-dialog";
import { ownNamespaces, useMe } from "@/lib/api/get-me";
import { namespacesOptions } from "@/lib/api/get-namespaces";
import { moment, useNow } from "@/lib/time";
import { useUrlState } from "@/lib/url-state";
import { membersOptions } from "../api/get-members";
import { useRemoveMember } from "../api/remove-member";
import { useSetMember } from "../api/set-member";

export function Members() {
  const me = useMe();
  return me && <MembersOf me={me} />;
}

function MembersOf({ me }: { me: Me }) {
  const uses = useQuery(namespacesOptions).data?.namespaces ?? [];
  const ownedNames = ownNamespaces(me);
  const all = me.role === "admin" ? uses.map((use) => use.namespace) : [];
  const names = [...new Set([...ownedNames, ...all])].sort();
  const [chosen, setChosen] = useUrlState("of", ownedNames[0] ?? "default");
  const namespace = names.includes(chosen) ? chosen : (names[0] ?? "default");
  return (
    <>
      <Group mb="sm" align="end">
        <Select
          label={t`Members of`}
          data={names}
          value={namespace}
          allowDeselect={false}
          onChange={(value) => value && setChosen(value)}
        />
      </Group>
      <MemberTable namespace={namespace} />
    </>
  );
}

function MemberTable({ namespace }: { namespace: string }) {
  const members = useQuery(membersOptions(namespace));
  const [removed, setRemoved] = useState<MemberView | null>(null);
  const now = useNow();
  const [isAdding, setAdding] = useState(false);
  const columns: Column<MemberView>[] = [
    { name: t`Name`, sortBy: (member) => member.name, cell: (member) => member.name },
    { name: t`Kind`, sortBy: (member) => member.kind, cell: (member) => member.kind },
    { name: t`Role`, sortBy: (member) => member.role, cell: (member) => member.role },
    { name: t`Set by`, cell: (member) => member.set_by },
    {
      name: t`Since`,
      sortBy: (member) => member.set_at,
      cell: (member) => moment(member.set_at, now),
    },
    {
      name: "",
      cell: (member) => <RemoveButton of={member.name} onClick={() => setRemoved(member)} />,
    },
  ];
  return (
    <>
      <Group mb="sm">
        <Button size="xs" onClick={() => setAdding(true)}>
          <Trans>Add member</Trans>
        </Button>
      </Group>
      <Loaded query={members}>
        {({ members: all }) =>
          all.length === 0 ? (
            <Empty title={t`No members yet`}>
              <Trans>
                People have roles here by their groups at the provider. A member has one beside
                those.
              </Trans>
            </Empty>
          ) : (
            <DataTable
              label={t`Members of ${namespace}`}
              columns={columns}
              rows={all}
              rowKey={(member) => member.member_id}
            />
          )
        }
      </Loaded>
      {isAdding && <MemberDialog namespace={namespace} onClose={() => setAdding(false)} />}
      {removed && (
        <RemoveMember namespace={namespace} member={removed} onClose={() => setRemoved(null)} />
      )}
    </>
  );
}

const KINDS: { value: MemberKind; label: string }[] = [
  { value: "person", label: t`person` },
  { value: "group", label: t`group` },
];
const ROLES: { value: Role; label: string }[] = [
  { value: "viewer", label: t`viewer: read only` },
  { value: "submitter", label: t`submitter: can also run tasks and reserve GPUs` },
  { value: "owner", label: t`owner: can also set its limit, tokens and members` },
];

function MemberDialog({ namespace, onClose }: { namespace: string; onClose: () => void }) {
  const set = useSetMember(namespace);
  const [kind, setKind] = useState<MemberKind>("person");
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("submitter");
  return (
    <Dialog onClose={onClose} title={t`Member of ${namespace}`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          set.mutate({ kind, name: name.trim(), role }, { onSuccess: onClose });
        }}
      >
        <Select
          label={t`Kind`}
          data={KINDS}
          value={kind}
          allowDeselect={false}
          onChange={(value) => value && setKind(value)}
          mb="sm"
        />
        <TextInput
          label={t`Name`}
          description={t`As the provider says it`}
          required
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          data-autofocus
          mb="sm"
        />
        <Select
          label={t`Role`}
          data={ROLES}
          value={role}
          allowDeselect={false}
          onChange={(value) => value && setRole(value)}
          mb="sm"
        />
        {set.error && <Failure error={set.error} />}
        <DialogActions onCancel={onClose}>
          <Button type="submit" loading={set.isPending} disabled={!name.trim()}>
            <Trans>Set</Trans>
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}

interface RemoveMemberProps {
  namespace: string;
  member: MemberView;
  onClose: () => void;
}

function RemoveMember({ namespace, member, onClose }: RemoveMemberProps) {
  const remove = useRemoveMember(namespace);
  return (
    <RemoveDialog
      title={t`Remove ${member.name} from ${namespace}?`}
      removal={remove}
      onRemove={() => remove.mutate(member, { onSuccess: onClose })}
      onClose={onClose}
    >
      <Trans>The role of a {member.role} here ends with the next request.</Trans>
    </RemoveDialog>
  );
}
