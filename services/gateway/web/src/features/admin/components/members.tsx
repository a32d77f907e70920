import { Button, Group, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { MemberKind, MemberView, Me, Role } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { Empty, Failure, Loaded } from "@/components/page";
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
          label="Members of"
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
  const remove = useRemoveMember(namespace);
  const now = useNow();
  const [isAdding, setAdding] = useState(false);
  const columns: Column<MemberView>[] = [
    { name: "Name", sortBy: (member) => member.name, cell: (member) => member.name },
    { name: "Kind", sortBy: (member) => member.kind, cell: (member) => member.kind },
    { name: "Role", sortBy: (member) => member.role, cell: (member) => member.role },
    { name: "Set by", cell: (member) => member.set_by },
    {
      name: "Since",
      sortBy: (member) => member.set_at,
      cell: (member) => moment(member.set_at, now),
    },
    {
      name: "",
      cell: (member) => (
        <Button
          size="compact-xs"
          variant="default"
          aria-label={`Remove ${member.name}`}
          loading={remove.isPending && remove.variables === member.member_id}
          onClick={() => remove.mutate(member.member_id)}
        >
          Remove
        </Button>
      ),
    },
  ];
  return (
    <>
      <Group mb="sm">
        <Button size="xs" onClick={() => setAdding(true)}>
          Add member
        </Button>
      </Group>
      {remove.error && <Failure error={remove.error} />}
      <Loaded query={members}>
        {({ members: all }) =>
          all.length === 0 ? (
            <Empty title="No members yet">
              People have roles here by their groups at the provider. A member has one beside those.
            </Empty>
          ) : (
            <DataTable
              label={`Members of ${namespace}`}
              columns={columns}
              rows={all}
              rowKey={(member) => member.member_id}
            />
          )
        }
      </Loaded>
      {isAdding && <MemberDialog namespace={namespace} onClose={() => setAdding(false)} />}
    </>
  );
}

const KINDS: { value: MemberKind; label: string }[] = [
  { value: "person", label: "person" },
  { value: "group", label: "group" },
];
const ROLES: { value: Role; label: string }[] = [
  { value: "viewer", label: "viewer: read only" },
  { value: "submitter", label: "submitter: can also run tasks and reserve GPUs" },
  { value: "owner", label: "owner: can also set its limit, tokens and members" },
];

function MemberDialog({ namespace, onClose }: { namespace: string; onClose: () => void }) {
  const set = useSetMember(namespace);
  const [kind, setKind] = useState<MemberKind>("person");
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("submitter");
  return (
    <Dialog onClose={onClose} title={`Member of ${namespace}`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          set.mutate({ kind, name: name.trim(), role }, { onSuccess: onClose });
        }}
      >
        <Select
          label="Kind"
          data={KINDS}
          value={kind}
          allowDeselect={false}
          onChange={(value) => value && setKind(value)}
          mb="sm"
        />
        <TextInput
          label="Name"
          description="As the provider says it"
          required
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
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
        {set.error && <Failure error={set.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={set.isPending} disabled={!name.trim()}>
            Set
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
