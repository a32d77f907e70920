import { Button, Group, NumberInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { NamespaceUse } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { Empty, Failure, Loaded } from "@/components/page";
import { useIsAdmin } from "@/lib/session";
import { number, percent, whole } from "@/lib/units";
import { namespacesOptions, useSetNamespace } from "../api/get-admin";

export function Namespaces() {
  const namespaces = useQuery(namespacesOptions);
  const isAdmin = useIsAdmin();
  const [edited, setEdited] = useState<NamespaceUse | "new" | null>(null);
  const columns: Column<NamespaceUse>[] = [
    { name: "Namespace", sortBy: (each) => each.namespace, cell: (each) => each.namespace },
    { name: "Held", unit: "GPUs", isNumber: true, sortBy: (each) => each.gpus, cell: (each) => number(each.gpus) },
    {
      name: "Limit",
      unit: "GPUs",
      isNumber: true,
      sortBy: (each) => each.gpu_limit,
      cell: (each) => (each.gpu_limit === null ? "none" : number(each.gpu_limit)),
    },
    {
      name: "Guaranteed",
      unit: "GPUs",
      title: "Granted before what others borrow, and taken back from them with notice",
      isNumber: true,
      cell: (each) => number(each.guaranteed_gpus),
    },
    {
      name: "Weight",
      title: "Of its share where several namespaces wait",
      isNumber: true,
      sortBy: (each) => each.weight,
      cell: (each) => number(each.weight),
    },
    { name: "Waiting", unit: "requests", isNumber: true, sortBy: (each) => each.queued, cell: (each) => whole(each.queued) },
    {
      name: "Used",
      unit: "% of the fleet",
      title: "Of its dominant resource, decayed over time; who has used least over its weight is served first",
      isNumber: true,
      sortBy: (each) => each.used_share,
      cell: (each) => percent(each.used_share === null ? null : each.used_share * 100),
    },
    ...(isAdmin
      ? [
          {
            name: "",
            cell: (each: NamespaceUse) => (
              <Button
                size="compact-xs"
                variant="default"
                aria-label={`Change ${each.namespace}`}
                onClick={() => setEdited(each)}
              >
                Change
              </Button>
            ),
          },
        ]
      : []),
  ];
  return (
    <>
      {isAdmin && (
        <Group mb="sm">
          <Button size="xs" variant="default" onClick={() => setEdited("new")}>
            Set rules of a namespace
          </Button>
        </Group>
      )}
      <Loaded query={namespaces}>
        {({ namespaces: all }) =>
          all.length === 0 ? (
            <Empty title="No namespace holds or waits for GPUs">
              One is there from its first request on. <code>gpusteward namespace set team-a --limit 8</code> sets
              what it may.
            </Empty>
          ) : (
            <DataTable label="Namespaces" columns={columns} rows={all} rowKey={(each) => each.namespace} />
          )
        }
      </Loaded>
      {edited && <RulesDialog given={edited === "new" ? null : edited} onClose={() => setEdited(null)} />}
    </>
  );
}

function RulesDialog({ given, onClose }: { given: NamespaceUse | null; onClose: () => void }) {
  const change = useSetNamespace();
  const [namespace, setNamespace] = useState(given?.namespace ?? "");
  const [limit, setLimit] = useState<number | string>(given?.gpu_limit ?? "");
  const [guaranteed, setGuaranteed] = useState<number | string>(given?.guaranteed_gpus ?? 0);
  const [weight, setWeight] = useState<number | string>(given?.weight ?? 1);
  return (
    <Dialog onClose={onClose} title={given ? `Rules of ${given.namespace}` : "Rules of a namespace"}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const rules = {
            gpu_limit: limit === "" ? null : Number(limit),
            guaranteed_gpus: Number(guaranteed || 0),
            weight: Number(weight || 1),
          };
          change.mutate({ namespace, rules }, { onSuccess: onClose });
        }}
      >
        {!given && (
          <TextInput
            label="Namespace"
            required
            value={namespace}
            onChange={(event) => setNamespace(event.currentTarget.value.trim())}
            data-autofocus
            mb="sm"
          />
        )}
        <NumberInput
          label="Limit"
          description="GPUs it may hold at once; without a number as many as there are"
          suffix=" GPUs"
          min={0}
          value={limit}
          onChange={setLimit}
          mb="sm"
        />
        <NumberInput
          label="Guaranteed"
          description="What is within it is served first, and taken back from who borrowed it"
          suffix=" GPUs"
          min={0}
          value={guaranteed}
          onChange={setGuaranteed}
          mb="sm"
        />
        <NumberInput
          label="Weight"
          description="Twice the weight is twice the share where several wait"
          min={1}
          value={weight}
          onChange={setWeight}
          mb="sm"
        />
        {change.error && <Failure error={change.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={change.isPending} disabled={!namespace}>
            Set
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
