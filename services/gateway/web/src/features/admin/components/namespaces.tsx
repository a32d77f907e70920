import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Group, NumberInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { NamespaceUse } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Empty, Failure, Loaded } from "@/components/page";
import { owns, useIsAdmin, useMe } from "@/lib/api/get-me";
import { namespacesOptions } from "@/lib/api/get-namespaces";
import { number, percent, whole } from "@/lib/units";
import { useSetNamespace } from "../api/set-namespace";

export function Namespaces() {
  const namespaces = useQuery(namespacesOptions);
  const me = useMe();
  const isAdmin = useIsAdmin();
  const [edited, setEdited] = useState<NamespaceUse | "new" | null>(null);
  const columns: Column<NamespaceUse>[] = [
    { name: t`Namespace`, sortBy: (use) => use.namespace, cell: (use) => use.namespace },
    {
      name: t`Held`,
      unit: "GPUs",
      isNumber: true,
      sortBy: (use) => use.gpus,
      cell: (use) => number(use.gpus),
    },
    {
      name: t`Limit`,
      unit: "GPUs",
      isNumber: true,
      sortBy: (use) => use.gpu_limit,
      cell: (use) => (use.gpu_limit === null ? "none" : number(use.gpu_limit)),
    },
    {
      name: t`Guaranteed`,
      unit: "GPUs",
      title: t`Granted before other namespaces may borrow, and reclaimed from borrowers with notice`,
      isNumber: true,
      cell: (use) => number(use.guaranteed_gpus),
    },
    {
      name: t`Weight`,
      title: t`Relative share when several namespaces are waiting`,
      isNumber: true,
      sortBy: (use) => use.weight,
      cell: (use) => number(use.weight),
    },
    {
      name: t`Waiting`,
      unit: "requests",
      isNumber: true,
      sortBy: (use) => use.queued,
      cell: (use) => whole(use.queued),
    },
    {
      name: t`Used`,
      unit: t`% of the fleet`,
      title: t`Decayed use of its dominant resource; the namespace with the least use per weight goes first`,
      isNumber: true,
      sortBy: (use) => use.used_share,
      cell: (use) => percent(use.used_share === null ? null : use.used_share * 100),
    },
    ...(me && (isAdmin || me.role === "owner")
      ? [
          {
            name: "",
            cell: (use: NamespaceUse) =>
              owns(me, use.namespace) && (
                <Button
                  size="compact-xs"
                  variant="default"
                  aria-label={t`Change ${use.namespace}`}
                  onClick={() => setEdited(use)}
                >
                  <Trans>Change</Trans>
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
            <Trans>Set namespace rules</Trans>
          </Button>
        </Group>
      )}
      <Loaded query={namespaces}>
        {({ namespaces: all }) =>
          all.length === 0 ? (
            <Empty title={t`No namespaces yet`}>
              <Trans>
                A namespace appears with its first request.{" "}
                <code>gpusteward namespace set team-a --limit 8</code> sets its limits.
              </Trans>
            </Empty>
          ) : (
            <DataTable
              label={t`Namespaces`}
              columns={columns}
              rows={all}
              rowKey={(use) => use.namespace}
            />
          )
        }
      </Loaded>
      {edited && (
        <RulesDialog given={edited === "new" ? null : edited} onClose={() => setEdited(null)} />
      )}
    </>
  );
}

function RulesDialog({
  given: initial,
  onClose,
}: {
  given: NamespaceUse | null;
  onClose: () => void;
}) {
  const change = useSetNamespace();
  const isAdmin = useIsAdmin();
  const [namespace, setNamespace] = useState(initial?.namespace ?? "");
  const [limit, setLimit] = useState<number | string>(initial?.gpu_limit ?? "");
  const [guaranteed, setGuaranteed] = useState<number | string>(initial?.guaranteed_gpus ?? 0);
  const [weight, setWeight] = useState<number | string>(initial?.weight ?? 1);
  return (
    <Dialog
      onClose={onClose}
      title={initial ? t`Rules of ${initial.namespace}` : t`Namespace rules`}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const rules = {
            gpu_limit: limit === "" ? null : Number(limit),
            guaranteed_gpus: Number(guaranteed || 0),
            weight: Number(weight || 1),
          };
          const before = initial && {
            gpu_limit: initial.gpu_limit,
            guaranteed_gpus: initial.guaranteed_gpus,
            weight: initial.weight,
          };
          change.mutate({ namespace, rules, before }, { onSuccess: onClose });
        }}
      >
        {!initial && (
          <TextInput
            label={t`Namespace`}
            required
            value={namespace}
            onChange={(event) => setNamespace(event.currentTarget.value.trim())}
            data-autofocus
            mb="sm"
          />
        )}
        <NumberInput
          label={t`Limit`}
          description={t`Maximum number of GPUs held at once; unlimited if empty`}
          suffix=" GPUs"
          min={0}
          value={limit}
          onChange={setLimit}
          mb="sm"
        />
        <NumberInput
          disabled={!isAdmin}
          label={t`Guaranteed`}
          description={t`GPUs it always gets: served first, and reclaimed from borrowers`}
          suffix=" GPUs"
          min={0}
          value={guaranteed}
          onChange={setGuaranteed}
          mb="sm"
        />
        <NumberInput
          disabled={!isAdmin}
          label={t`Weight`}
          description={t`Twice the weight gets twice the share when several are waiting`}
          min={1}
          value={weight}
          onChange={setWeight}
          mb="sm"
        />
        {change.error && <Failure error={change.error} />}
        <DialogActions onCancel={onClose}>
          <Button type="submit" loading={change.isPending} disabled={!namespace}>
            <Trans>Set</Trans>
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}
